package supervisor

import (
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"
)

// inTime fails if f does not return while something else is under way.
func inTime(t *testing.T, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatalf("%s waits", what)
	}
}

// TestCallersDuringAPublication lets neither the request of a stage wait for the tables of the relay nor that of a client for a path that
// there is not.
func TestCallersDuringAPublication(t *testing.T) {
	t.Parallel()
	f := ready(t, nil)
	token := f.current("b").Token()
	f.gate.Lock()
	release := sync.OnceFunc(f.gate.Unlock)
	defer release()
	published := make(chan struct{})
	go func() {
		defer close(published)
		held := f.lock()
		defer held.unlock()
		held.publish()
	}()
	eventually(t, "the chain is being published", func() bool {
		free := f.locked.mu.TryLock()
		if free {
			f.locked.mu.Unlock()
		}
		return !free
	})
	inTime(t, "a request of a stage", func() {
		if id, ok := f.Authenticate(token); !ok || id.Stage != "b" {
			t.Errorf("%t, %+v", ok, id)
		}
	})
	inTime(t, "a request for nothing", func() {
		if stage := f.Incomplete(); stage != "" {
			t.Errorf("%s is incomplete", stage)
		}
	})
	release()
	<-published
}

// TestEventsDelayNobody has somebody take long over an event: a stage comes back meanwhile, and the events come in their order.
func TestEventsDelayNobody(t *testing.T) {
	t.Parallel()
	begun, release := make(chan struct{}), make(chan struct{})
	let := sync.OnceFunc(func() { close(release) })
	defer let()
	var mu sync.Mutex
	var kinds []EventKind
	f := ready(t, func(o *options) {
		o.Events = func(e Event) {
			if e.Stage != "b" || e.Kind != Held && e.Kind != Restarted {
				return
			}
			if e.Kind == Held {
				close(begun)
				<-release
			}
			mu.Lock()
			defer mu.Unlock()
			kinds = append(kinds, e.Kind)
		}
	})
	old := f.current("b")
	kill(t, old.PID())
	<-begun
	inTime(t, "the status", func() { f.Status() })
	eventually(t, "b is back", func() bool {
		status, _ := f.ask("GET", "/b", "")
		return status == http.StatusOK && f.current("b") != old
	})
	let()
	eventually(t, "the events come in their order", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return slices.Equal(kinds, []EventKind{Held, Restarted})
	})
}
