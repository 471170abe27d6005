package relay

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// TestSwap replaces the endpoint of a stage again and again while requests come. Each
// is executed exactly once and gets its response, and the replaced endpoints get empty.
func TestSwap(t *testing.T) {
	t.Parallel()
	var executed, sent atomic.Int64
	stage := serveStage(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		executed.Add(1)
	}))
	chain := NewChain(Config{})
	dir, swaps := t.TempDir(), 0
	// swap gives the stage another socket, and returns the endpoint of the one before.
	swap := func() *endpoint {
		old := chain.state.Load()
		swaps++
		socket := filepath.Join(dir, fmt.Sprint(swaps))
		if err := os.Symlink(stage, socket); err != nil {
			t.Fatal(err)
		}
		chain.Set(Tables{All: order(1)}, []Stage{{Name: "a", Socket: socket}})
		if old == nil {
			return nil
		}
		return old.targets[0].endpoint
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
	var replaced []*endpoint
	for i := range int64(50) {
		eventually(t, "more requests to get a response", func() bool { return sent.Load() >= 10*i })
		replaced = append(replaced, swap())
	}
	close(done)
	clients.Wait()
	replaced = append(replaced, swap())
	chain.Set(Tables{All: order(0)}, nil)
	for _, e := range replaced {
		if err := e.wait(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if s, x := sent.Load(), executed.Load(); s != x {
		t.Errorf("%d requests got a response, %d executed", s, x)
	}
}
