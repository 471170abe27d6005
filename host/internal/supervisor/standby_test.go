package supervisor

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// withStandby makes stage b one that has a standby.
func withStandby(o *options) { o.Chain[1].Standby = true }

// standby is the process id of the standby of b, 0 if there is none.
func (f *fixture) standby() int {
	if g := f.Status()[1].Standby; g != nil {
		return g.PID
	}
	return 0
}

func (f *fixture) tookOver() []time.Duration {
	f.Supervisor.events.flush()
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []time.Duration
	for _, e := range f.happened {
		if e.Kind == TookOver {
			all = append(all, e.Took)
		}
	}
	return all
}

// TestStandbyTakesOver kills the process of a stage again and again. Its standby serves
// what comes, and another comes to stand by.
func TestStandbyTakesOver(t *testing.T) {
	t.Parallel()
	f := ready(t, withStandby)
	for round := range 3 {
		eventually(t, "there is a standby", func() bool { return f.standby() != 0 })
		dead, standby := f.pid("b"), f.standby()
		if status, body := f.ask("GET", "/b", ""); status != 200 || !strings.HasPrefix(body, fmt.Sprint(dead, " ")) {
			t.Errorf("round %d: with a standby, the answer is %d %s, want it from %d", round, status, body, dead)
		}
		kill(t, dead)
		if status, body := f.ask("GET", "/b", ""); status != http.StatusOK || !strings.HasPrefix(body, fmt.Sprint(standby, " ")) {
			t.Errorf("round %d: %d %s, want it from %d", round, status, body, standby)
		}
		eventually(t, "the takeover is told", func() bool { return len(f.tookOver()) == round+1 })
	}
	eventually(t, "there is a standby", func() bool { return f.standby() != 0 })
	if st := f.Status()[1]; st.State != "serving" || st.Restarts != 3 || st.Standby.State != "standby" {
		t.Errorf("status %+v, standby %+v", st, st.Standby)
	}
	t.Logf("from the end of the process until another accepted: %v", f.tookOver())
}

// TestSwapReplacesTheStandby shows that what stands by is what serves.
func TestSwapReplacesTheStandby(t *testing.T) {
	t.Parallel()
	f := ready(t, withStandby)
	eventually(t, "there is a standby", func() bool { return f.standby() != 0 })
	old := f.standby()
	stop := f.clients(t, "/b")
	if _, err := f.Swap(t.Context(), "b", SwapOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "there is another standby", func() bool { return f.standby() != 0 && f.standby() != old })
	stop()
	eventually(t, "the old one is gone", func() bool { return syscall.Kill(old, 0) != nil })
	standby := f.standby()
	kill(t, f.pid("b"))
	if status, body := f.ask("GET", "/b", ""); status != http.StatusOK || !strings.HasPrefix(body, fmt.Sprint(standby, " ")) {
		t.Errorf("%d %s, want it from %d", status, body, standby)
	}
}

// TestStandbyTakesOverFromASuspendedProcess is a failed liveness.
func TestStandbyTakesOverFromASuspendedProcess(t *testing.T) {
	t.Parallel()
	f := ready(t, func(o *options) {
		withStandby(o)
		o.Chain[1].LivenessTimeout = 4 * time.Second
	})
	eventually(t, "there is a standby", func() bool { return f.standby() != 0 })
	standby := f.standby()
	suspend(t, f.pid("b"))
	if status, body := f.ask("GET", "/b", ""); status != http.StatusOK || !strings.HasPrefix(body, fmt.Sprint(standby, " ")) {
		t.Errorf("%d %s, want it from %d", status, body, standby)
	}
}

// TestStandbyThatEndsIsReplaced kills the standby itself, and one that is suspended is
// no help: the stage is restarted as if there were none.
func TestStandbyThatEndsIsReplaced(t *testing.T) {
	t.Parallel()
	f := ready(t, withStandby)
	eventually(t, "there is a standby", func() bool { return f.standby() != 0 })
	old := f.standby()
	if err := syscall.Kill(old, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "there is another", func() bool { return f.standby() != 0 && f.standby() != old })
	old, dead := f.standby(), f.pid("b")
	suspend(t, old)
	kill(t, dead)
	status, body := f.ask("GET", "/b", "")
	if status != http.StatusOK || strings.HasPrefix(body, fmt.Sprint(old, " ")) {
		t.Errorf("%d %s", status, body)
	}
	eventually(t, "the suspended standby is gone, another is there", func() bool {
		return syscall.Kill(old, 0) != nil && f.standby() != 0
	})
}

// TestStandbyIsAppliedLive switches it on and off without a swap.
func TestStandbyIsAppliedLive(t *testing.T) {
	t.Parallel()
	f := ready(t, nil)
	specs, pid := f.Specs(), f.pid("b")
	specs[1].Standby = true
	if _, err := f.Apply(t.Context(), specs); err != nil {
		t.Fatal(err)
	}
	eventually(t, "there is a standby", func() bool { return f.standby() != 0 })
	specs[1].Standby = false
	if _, err := f.Apply(t.Context(), specs); err != nil {
		t.Fatal(err)
	}
	eventually(t, "there is none", func() bool { return f.standby() == 0 })
	f.settled(t)
	if f.pid("b") != pid {
		t.Error("the stage was swapped")
	}
}

// TestStageThatCannotStandBySaysSo runs a stage of an older SDK.
func TestStageThatCannotStandBySaysSo(t *testing.T) {
	t.Parallel()
	f := ready(t, func(o *options) { o.Chain[1].Env[envFault] = "old" })
	specs := f.Specs()
	specs[1].Standby = true
	if _, err := f.Apply(t.Context(), specs); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the status says why there is no standby", func() bool {
		return strings.Contains(f.Status()[1].StandbyFailure, `stage "b": does not announce`)
	})
	eventually(t, "it is told once", func() bool {
		return slices.Equal(f.kinds(StandbyFailed), []string{"standby-failed b"})
	})
}
