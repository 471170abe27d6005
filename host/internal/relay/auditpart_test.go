package relay

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/catena-dev/catena/host/internal/bounds"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// A stage that is trusted adds to the audit event of a request that it serves, while it has that.
func TestAuditPart(t *testing.T) {
	t.Parallel()
	var h *host
	var id string
	const part = `{"responseObject":{"é":1}}`
	check := func(when, token, id string, status int) {
		t.Helper()
		resp, err := h.call(t.Context(), token, stagev1.HeaderAuditPart, id, "/", strings.NewReader(part))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if resp.StatusCode != status {
			t.Errorf("%s: %d, want %d", when, resp.StatusCode, status)
		}
	}
	calls := false
	h = newHost(t, serveStage(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id = r.Header.Get(stagev1.HeaderRequest)
		if calls {
			resp, err := h.call(t.Context(), "token-a", stagev1.HeaderNext, id, "/x", nil)
			if err != nil {
				t.Error(err)
				return
			}
			resp.Body.Close()
			check("a request that it has handed on", "token-a-trusted", id, http.StatusConflict)
			return
		}
		check("the request of another stage", "token-b-trusted", id, http.StatusConflict)
		check("another id", "token-a-trusted", "12345", http.StatusConflict)
		check("no id", "token-a-trusted", "all", http.StatusBadRequest)
		check("a stage that is not trusted", "token-a", id, http.StatusForbidden)
		check("no stage", "nobody", id, http.StatusUnauthorized)
		check("its own request", "token-a-trusted-readonly", id, http.StatusNoContent)
		check("its own request, again", "token-a-trusted", id, http.StatusNoContent)
		w.WriteHeader(http.StatusOK)
	})), serveStage(t, http.NotFoundHandler()))
	got := &reported{}
	h.chain.config.Propagator = got
	h.chain.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/x", nil))
	if want := "a serves=true kubernetes=false X-Catena-Audit " + part; !slices.Equal(got.all, []string{want, want}) {
		t.Errorf("reported %q, want %q twice", got.all, want)
	}
	check("a request that has ended", "token-a-trusted", id, http.StatusConflict)
	calls = true
	h.chain.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/x", nil))
	if parts := h.chain.auditParts; len(parts.held) > 0 || parts.some.Load() != 0 || !parts.room.TryAcquire(bounds.AuditParts) {
		t.Errorf("what has ended holds %v", parts.held)
	}
}

// Requests wait for room in the audit events of others, and not for ever.
func TestRoomForAuditParts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		parts := newAuditParts()
		hold := func(id uint64, size int64) error { return parts.hold(t.Context(), id, size) }
		if err := errors.Join(hold(1, bounds.AuditPart), hold(1, 10), hold(2, bounds.AuditPart-10)); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if err := hold(3, 1); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != bounds.AuditWait {
			t.Errorf("without room: %v after %s", err, time.Since(began))
		}
		go func() {
			time.Sleep(time.Second)
			parts.release(1)
			parts.release(1) // it has nothing any more
			parts.release(7) // nor has this
		}()
		began = time.Now()
		if err := hold(3, bounds.AuditPart+10); err != nil || time.Since(began) != time.Second {
			t.Errorf("with room in a second: %v after %s", err, time.Since(began))
		}
	})
}
