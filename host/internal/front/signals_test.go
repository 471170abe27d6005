package front_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/catena-dev/catena/host/internal/lifecycle"
)

// recorder keeps the signals that have come.
type recorder struct {
	mu    sync.Mutex
	names []string
}

func (r *recorder) came(name string, _ time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.names = append(r.names, name)
}

func (r *recorder) all() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.names)
}

func TestSignalsComeInKubernetesOrder(t *testing.T) {
	t.Parallel()
	for _, retryAfter := range []string{"true", "false"} {
		t.Run("shutdown-send-retry-after="+retryAfter, func(t *testing.T) {
			t.Parallel()
			flags := open(t)
			flags["shutdown-send-retry-after"] = []string{retryAfter}
			flags["shutdown-delay-duration"] = []string{"2s"} // the hooks, of which there are none, end before that
			var signals recorder
			s := newServer(t, flags)
			s.signaled = signals.came
			complete := make(chan struct{})
			if err := s.AddSignal("stage/installed", complete); err != nil {
				t.Fatal(err)
			}
			ready := make(chan struct{})
			s.SetChecks(func() []lifecycle.Check {
				return []lifecycle.Check{check("a/b", func(context.Context) error {
					select {
					case <-ready:
						return nil
					default:
						return errTest
					}
				})}
			})
			s.run(t)
			admin := s.admin(t)
			eventually(t, "response", func() bool { return admin.get(t, "/readyz").code == 500 })
			if got := signals.all(); len(got) > 0 {
				t.Errorf("signals before their time: %v", got)
			}
			close(complete)
			eventually(t, "first signal", func() bool { return len(signals.all()) == 1 })
			close(ready)
			s.waitReady(t)
			s.stop()
			if err := <-s.ended; err != nil {
				t.Error(err)
			}
			got := signals.all()
			want := []string{
				"MuxAndDiscoveryComplete", "HasBeenReady", "ShutdownInitiated", "PreShutdownHooksStopped",
				"AfterShutdownDelayDuration", "NotAcceptingNewRequest", "InFlightRequestsDrained", "HTTPServerStoppedListening",
			}
			if retryAfter == "false" && len(got) == len(want) {
				slices.Sort(got[6:]) // in any order
				slices.Sort(want[6:])
			}
			if !slices.Equal(got, want) {
				t.Errorf("signals:\n%s\nwant:\n%s", strings.Join(got, " "), strings.Join(want, " "))
			}
		})
	}
}
