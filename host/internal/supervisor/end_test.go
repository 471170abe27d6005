package supervisor

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/catena-dev/catena/host/internal/lifecycle"
)

// TestHooksOfAReplacedProcessWhoseRequestsTakeLong run all the same.
func TestHooksOfAReplacedProcessWhoseRequestsTakeLong(t *testing.T) {
	t.Parallel()
	f := ready(t, func(o *options) { o.Chain[1].DrainTimeout = time.Second })
	file := filepath.Join(t.TempDir(), "file")
	answered := make(chan int, 1)
	go func() {
		status, _ := f.ask("GET", "/b?slow="+file, "")
		answered <- status
	}()
	eventually(t, "the request is under way", func() bool { return f.relay.Loads()[1].InFlight == 1 })
	if _, err := f.swap(t, "b", SwapOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the old process is destroyed", func() bool { return slices.Contains(f.events(t), "destroy b") })
	if got := f.events(t); !slices.Contains(got, "pre-shutdown b") {
		t.Errorf("no pre-shutdown hook: %q", got)
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	<-answered
}

// TestWatchesOfAReplacedProcessBesideAThird end at once: no more than two processes of a stage, and one that comes up,
// have connections.
func TestWatchesOfAReplacedProcessBesideAThird(t *testing.T) {
	t.Parallel()
	f := ready(t, func(o *options) { o.Chain[1].DrainTimeout, o.Chain[1].DrainSpread = time.Hour, time.Hour })
	answered := make(chan int, 1)
	go func() {
		status, _ := f.ask("GET", "/b?watch=1", "")
		answered <- status
	}()
	eventually(t, "the watch is under way", func() bool { return f.relay.Loads()[1].InFlight == 1 })
	old := f.current("b")
	if _, err := f.swap(t, "b", SwapOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it drains", func() bool { return f.state(f.order()[1], old) == lifecycle.Draining })
	if _, err := f.swap(t, "b", SwapOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it has ended", func() bool { return old.Err() != nil })
	if status := <-answered; status != http.StatusOK {
		t.Errorf("status %d", status)
	}
}

// TestRequestsThatWaitForADeadStageAtTheEnd do not hold up the end.
func TestRequestsThatWaitForADeadStageAtTheEnd(t *testing.T) {
	t.Parallel()
	t.Run("dead before", func(t *testing.T) {
		t.Parallel()
		f := ready(t, nil)
		f.lose("b")
		kill(t, f.pid("b"))
		eventually(t, "requests are held", func() bool { return f.Status()[1].State == "backing off" })
		answered := f.askSoon("GET", "POST")
		eventually(t, "the requests wait", func() bool { return f.relay.Loads()[1].Waiting == 2 })
		f.Drain(t.Context(), 0)
		wantRefused(t, answered, 2)
	})
	t.Run("dies meanwhile", func(t *testing.T) {
		t.Parallel()
		f := ready(t, nil)
		file := filepath.Join(t.TempDir(), "file")
		answered := make(chan int, 1)
		go func() {
			status, _ := f.ask("GET", "/b?slow="+file, "")
			answered <- status
		}()
		eventually(t, "the request is under way", func() bool { return f.relay.Loads()[1].InFlight == 1 })
		ctx, cancel := context.WithCancel(t.Context())
		drained := make(chan struct{})
		go func() {
			f.Drain(ctx, 0)
			close(drained)
		}()
		eventually(t, "the server stops", f.isStopping)
		kill(t, f.pid("b"))
		wantRefused(t, answered, 1)
		cancel()
		<-drained
	})
}

// askSoon sends requests to b, and delivers how they are answered.
func (f *fixture) askSoon(methods ...string) <-chan int {
	answered := make(chan int, len(methods))
	for _, method := range methods {
		go func() {
			status, _ := f.ask(method, "/b", "")
			answered <- status
		}()
	}
	return answered
}

// wantRefused gives the requests half the time that they would have to wait otherwise.
func wantRefused(t *testing.T, answered <-chan int, n int) {
	t.Helper()
	for range n {
		select {
		case status := <-answered:
			if status != http.StatusServiceUnavailable {
				t.Errorf("answered %d", status)
			}
		case <-time.After(patience / 2):
			t.Fatal("a request still waits")
		}
	}
}
