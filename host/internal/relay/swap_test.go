package relay

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// TestSwap replaces the endpoint of a stage again and again while requests come. Each
// is executed exactly once and answered, and the replaced endpoints get empty.
func TestSwap(t *testing.T) {
	t.Parallel()
	var executed, sent atomic.Int64
	stage := serveStage(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		executed.Add(1)
	}))
	chain := NewChain(Config{})
	swap := func() *Endpoint {
		old := chain.Swap(&Snapshot{Table: order(1), Links: []Link{{Name: "a", Endpoint: NewEndpoint("a", stage)}}})
		if old == nil {
			return nil
		}
		old.Links[0].Endpoint.Close()
		return old.Links[0].Endpoint
	}
	swap()
	done := make(chan struct{})
	var clients sync.WaitGroup
	for range 4 {
		clients.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				rec := httptest.NewRecorder()
				chain.ServeHTTP(rec, httptest.NewRequest("POST", "/", strings.NewReader("x")))
				if sent.Add(1); rec.Code != http.StatusOK {
					t.Errorf("%d %s", rec.Code, rec.Body)
					return
				}
			}
		})
	}
	var replaced []*Endpoint
	for i := range int64(50) {
		eventually(t, "more requests to be answered", func() bool { return sent.Load() >= 10*i })
		replaced = append(replaced, swap())
	}
	close(done)
	clients.Wait()
	replaced = append(replaced, swap())
	chain.state.Load().Links[0].Endpoint.Close()
	for _, e := range replaced {
		if err := e.Wait(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if s, x := sent.Load(), executed.Load(); s != x {
		t.Errorf("%d requests were answered, %d executed", s, x)
	}
}
