package relay

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"
)

// A stage that responds with 504 because it has noticed the deadline first leaves that to the filter that
// has set it; any other response is the client's.
func TestStageIsAheadWithTheDeadline(t *testing.T) {
	t.Parallel()
	stage := serveStage(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status, _ := strconv.Atoi(r.URL.Query().Get("status"))
		w.WriteHeader(status)
	}))
	for _, tc := range []struct {
		what   string
		status int
		left   time.Duration
		late   bool
	}{
		{"504 at the deadline", http.StatusGatewayTimeout, deadlineSkew / 2, true},
		{"504 of its own", http.StatusGatewayTimeout, time.Minute, false},
		{"success", http.StatusOK, time.Minute, false},
	} {
		var failed *StageError
		ctx, cancel := context.WithTimeout(t.Context(), tc.left)
		defer cancel()
		chain := newChain(t, Config{Error: func(_ http.ResponseWriter, r *http.Request, e *StageError) {
			failed = e
			if !errors.Is(r.Context().Err(), context.DeadlineExceeded) {
				t.Errorf("%s: the context has not ended: %v", tc.what, r.Context().Err())
			}
		}}, stage)
		w := httptest.NewRecorder()
		chain.ServeHTTP(w, httptest.NewRequestWithContext(ctx, "GET", "/?status="+strconv.Itoa(tc.status), nil))
		switch {
		case tc.late && (failed == nil || failed.Kind != Canceled):
			t.Errorf("%s: %d, %v", tc.what, w.Code, failed)
		case !tc.late && (failed != nil || w.Code != tc.status):
			t.Errorf("%s: %d, %v, want %d", tc.what, w.Code, failed, tc.status)
		}
	}
}
