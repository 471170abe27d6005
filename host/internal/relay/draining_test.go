package relay

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
)

// A socket that has left the chain is empty when the last of its requests has ended,
// whether it had reached the stage or not.
func TestAwaitEmpty(t *testing.T) {
	t.Parallel()
	reached, release := make(chan struct{}), make(chan struct{})
	before := serveStage(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		close(reached)
		<-release
	}))
	after := serveStage(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	chain := NewChain(Config{})
	chain.Set(Tables{All: order(1)}, []Stage{{Name: "a", Socket: before}})
	responded := make(chan int, 1)
	go func() {
		rec := httptest.NewRecorder()
		chain.ServeHTTP(rec, httptest.NewRequest("POST", "/", nil))
		responded <- rec.Code
	}()
	within(t, "the request to reach the stage", reached)
	chain.Set(Tables{All: order(1)}, []Stage{{Name: "a", Socket: after}})

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 20 { // a choice at random would be seen
		if err := chain.AwaitEmpty(ctx, before); !errors.Is(err, context.Canceled) {
			t.Fatalf("a socket with a request is reported to be empty: %v", err)
		}
	}
	close(release)
	if err := chain.AwaitEmpty(t.Context(), before); err != nil {
		t.Error(err)
	}
	if code := within(t, "the response", responded); code != http.StatusOK {
		t.Errorf("status %d", code)
	}
	eventually(t, "the endpoint to be forgotten", func() bool {
		chain.draining.mu.Lock()
		defer chain.draining.mu.Unlock()
		return len(chain.draining.endpoints) == 0
	})
}
