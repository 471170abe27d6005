package supervisor

import (
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestSettingsOutliveAProcess changes what needs no other process, and then the process is
// another all the same.
func TestSettingsOutliveAProcess(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*Options)
		// another makes b have another process: the one with the id that is returned.
		another func(t *testing.T, f *fixture) (end func() int)
	}{
		"standby": {withStandby, func(t *testing.T, f *fixture) func() int {
			eventually(t, "there is a standby", func() bool { return f.standby() != 0 })
			standby := f.standby()
			return func() int { kill(t, f.pid("b")); return standby }
		}},
		"rollback": {nil, func(t *testing.T, f *fixture) func() int {
			p := f.onProbation(t)
			return func() int { p.rollBack("it is bad"); return p.moved[0].old.proc.PID() }
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := ready(t, tc.change)
			end := tc.another(t, f)
			specs := f.specs()
			specs[1].DrainTimeout, specs[1].StartTimeout = 41*time.Second, 42*time.Second
			if _, err := f.Apply(t.Context(), specs); err != nil {
				t.Fatal(err)
			}
			want := end()
			eventually(t, "b has the other process", func() bool { return f.pid("b") == want })
			if is := f.specs()[1]; is.DrainTimeout != 41*time.Second || is.StartTimeout != 42*time.Second {
				t.Errorf("drainTimeout %s, startTimeout %s", is.DrainTimeout, is.StartTimeout)
			}
		})
	}
}

// rollingBack puts b on probation with another configuration, and returns in the middle
// of its rollback. Done lets that go on.
func (f *fixture) rollingBack(t *testing.T) (p *probation, done func()) {
	t.Helper()
	swapped := SwapOptions{Rollback: Rollback{Probation: time.Minute}, Change: answering(201)}
	if _, err := f.Swap(t.Context(), "b", swapped); err != nil {
		t.Fatal(err)
	}
	p = f.Supervisor.probation.Load()
	f.publishing.Lock()
	f.running.Go(func() { p.rollBack("it is bad") })
	eventually(t, "the rollback has begun", func() bool { return p.over.Load() })
	return p, f.publishing.Unlock
}

// TestSwapDuringARollback does not bring back what has just been taken back.
func TestSwapDuringARollback(t *testing.T) {
	t.Parallel()
	f := ready(t, nil)
	p, done := f.rollingBack(t)
	swap := make(chan error, 1)
	go func() {
		swapped, err := f.Swap(t.Context(), "c", SwapOptions{Change: func(*Spec) { <-p.closed }})
		if err == nil && len(swapped.Also) > 0 {
			t.Errorf("also swapped %q", swapped.Also)
		}
		swap <- err
	}()
	eventually(t, "the swap has its turn", func() bool { return len(f.Supervisor.changing) == 1 })
	done()
	if err := <-swap; err != nil {
		t.Error(err)
	}
	if f.chain()[1].generation() != p.moved[0].old || f.specs()[1].Config["status"] != nil {
		t.Errorf("b is made from %v", f.specs()[1].Config)
	}
}

// TestReloadDuringARollback ends with processes that were made from what is wanted. No
// other test is at work meanwhile, so that the goroutine can be found.
func TestReloadDuringARollback(t *testing.T) {
	f := ready(t, nil)
	_, done := f.rollingBack(t)
	specs, reload := f.specs(), make(chan error, 1)
	specs[2].Config = map[string]any{"log": f.log, "status": 202}
	go func() {
		applied, err := f.Apply(t.Context(), specs)
		if err == nil && !slices.Equal(applied.Swapped, []string{"b", "c"}) {
			t.Errorf("swapped %q", applied.Swapped)
		}
		reload <- err
	}()
	eventually(t, "the reload waits for the rollback", func() bool {
		stacks := make([]byte, 1<<20)
		return strings.Contains(string(stacks[:runtime.Stack(stacks, true)]), "(*probation).finish")
	})
	done()
	if err := <-reload; err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]int{"/b": 201, "/c": 202} {
		if status, body := f.ask("GET", path, ""); status != want {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
}
