package relay

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
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
	chain.Set(order(1), []Stage{{Name: "a", Socket: before}})
	answered := make(chan int, 1)
	go func() {
		rec := httptest.NewRecorder()
		chain.ServeHTTP(rec, httptest.NewRequest("POST", "/", nil))
		answered <- rec.Code
	}()
	within(t, "the request to reach the stage", reached)
	chain.Set(order(1), []Stage{{Name: "a", Socket: after}})

	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := chain.AwaitEmpty(ctx, before); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a socket with a request is said to be empty: %v", err)
	}
	close(release)
	if err := chain.AwaitEmpty(t.Context(), before); err != nil {
		t.Error(err)
	}
	if code := within(t, "the answer", answered); code != http.StatusOK {
		t.Errorf("answer %d", code)
	}
	eventually(t, "the endpoint to be forgotten", func() bool {
		chain.leaving.mu.Lock()
		defer chain.leaving.mu.Unlock()
		return len(chain.leaving.endpoints) == 0
	})
}
