package supervisor

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/catena-dev/catena/host/internal/generation"
)

func TestKilledStageComesBack(t *testing.T) {
	t.Parallel()
	f, err := start(t, nil)
	if err != nil {
		t.Fatal(err)
	}
	f.RunPostStartHooks(func(err error) { t.Error(err) })
	eventually(t, "the hooks of b have run", func() bool { return slices.Contains(f.events(t), "post-start b") })
	old, token := f.pid("b"), f.current("b").Token()
	if id, ok := f.Authenticate(token); !ok || id.Stage != "b" || id.User != "user-b" {
		t.Fatalf("token of b belongs to %+v, %t", id, ok)
	}
	kill(t, old)
	// The socket is the host's: a request that comes meanwhile waits in it.
	body, err := f.get("b")
	if err != nil || strings.HasPrefix(body, fmt.Sprint(old, " ")) || !strings.HasSuffix(body, "[c[/c]]") {
		t.Errorf("restarted stage answers %q, %v", body, err)
	}
	if _, ok := f.Authenticate(token); ok {
		t.Error("the token of the dead generation is still good")
	}
	eventually(t, "the hooks of b run again", func() bool {
		n := 0
		for _, e := range f.events(t) {
			if e == "post-start b" {
				n++
			}
		}
		return n == 2
	})
	if body, err := f.get("c"); err != nil || !strings.HasPrefix(body, fmt.Sprint(f.pid("c"), " ")) {
		t.Errorf("neighbour answers %q, %v", body, err)
	}
}

func TestSuspendedStageIsKilledAndComesBack(t *testing.T) {
	t.Parallel()
	f, err := start(t, func(o *options) { o.Chain[2].LivenessTimeout = 4 * time.Second })
	if err != nil {
		t.Fatal(err)
	}
	old := f.pid("c")
	suspend(t, old)
	eventually(t, "another process serves", func() bool {
		st := f.Status()[2]
		return st.PID != old && st.State == "serving"
	})
	if body, err := f.get("c"); err != nil || body == "" {
		t.Errorf("answer %q, %v", body, err)
	}
}

func TestStageThatDoesNotComeBackIsTakenDown(t *testing.T) {
	t.Parallel()
	f, err := start(t, func(o *options) { o.HoldTimeout = 100 * time.Millisecond })
	if err != nil {
		t.Fatal(err)
	}
	f.lose("b")
	if err := syscall.Kill(f.pid("b"), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the stage is published without a socket, with its claims", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		b := f.published[1]
		return b.Socket == "" && len(b.Claims) == 1 && b.Failure != ""
	})
	// What keeps crashing can be swapped for what does not.
	self, _ := os.Executable()
	if _, err := f.swap(t, "b", SwapOptions{Change: changing(func(s *Spec) { s.Binary = self })}); err != nil {
		t.Fatal(err)
	}
	if body, err := f.get("b"); err != nil || body == "" {
		t.Errorf("after the swap: %q, %v", body, err)
	}
}

func TestHungStageGivesAFailedCheckInTime(t *testing.T) {
	t.Parallel()
	f, err := start(t, nil)
	if err != nil {
		t.Fatal(err)
	}
	g := f.current("a")
	suspend(t, g.PID())
	defer func() { _ = syscall.Kill(g.PID(), syscall.SIGCONT) }()
	done := make(chan error, 1)
	go func() { done <- g.CheckHealth(t.Context(), "anything") }()
	select {
	case err := <-done:
		if err == nil {
			t.Error("a suspended stage is healthy")
		}
	case <-time.After(10 * generation.CheckTimeout):
		t.Error("the check of a suspended stage hangs")
	}
}

// TestSwapDuringARestart is refused while a process is just being brought up, and
// possible between two attempts. A change of the chain waits.
func TestSwapDuringARestart(t *testing.T) {
	t.Parallel()
	f := ready(t, nil)
	st := f.order()[1]
	if err := st.launching.Acquire(t.Context(), 1); err != nil { // as a restart does
		t.Fatal(err)
	}
	if _, err := f.Swap(t.Context(), "b", SwapOptions{}); !errors.Is(err, ErrBusy) || !strings.Contains(err.Error(), `stage "b"`) {
		t.Errorf("got %v", err)
	}
	specs, done := f.Specs(), make(chan error, 1)
	specs[1].Config = map[string]any{"log": f.log, "paths": []string{"/more"}}
	go func() {
		_, err := f.Apply(t.Context(), specs)
		done <- err
	}()
	eventually(t, "the change has its turn", f.changeIsUnderWay)
	st.launching.Release(1)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if status, body := f.ask("GET", "/more", ""); status != 200 {
		t.Errorf("%d %s", status, body)
	}
}
