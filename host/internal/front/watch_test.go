package front_test

import (
	"context"
	"net/http"
	"strconv"
	"testing"
)

// Each watch takes a seat of priority and fairness until its answer begins. If
// seats were not given back then, the third would be refused.
func TestWatchesGiveTheirSeatsBack(t *testing.T) {
	t.Parallel()
	tokens := writeFile(t, "tokens.csv", "secret,bob,1\n")
	s := start(t, flagValues{
		"authorization-mode":             {"AlwaysAllow"},
		"token-auth-file":                {tokens},
		"max-requests-inflight":          {"1"},
		"max-mutating-requests-inflight": {"1"},
	}, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	bob := s.client(t)
	bob.token = "secret"
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for i := range 5 {
		response, err := bob.send(ctx, http.MethodGet, "/api/v1/pods?watch=true")
		if err != nil {
			t.Fatalf("watch %d: %v", i, err)
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			t.Fatalf("watch %d: %s", i, response.Status)
		}
	}
}

func number(t *testing.T, s string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		t.Error(err)
	}
	return n
}
