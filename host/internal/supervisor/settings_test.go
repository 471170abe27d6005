package supervisor

import (
	"errors"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
)

// TestSettingsOutliveAProcess changes what needs no other process, and then the process is
// another all the same.
func TestSettingsOutliveAProcess(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*options)
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
			return func() int { p.rollBack(hclog.Error, "it is bad"); return p.moved[0].old.PID() }
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := ready(t, tc.change)
			end := tc.another(t, f)
			specs := f.Specs()
			specs[1].DrainTimeout, specs[1].StartTimeout = 41*time.Second, 42*time.Second
			if _, err := f.Apply(t.Context(), specs); err != nil {
				t.Fatal(err)
			}
			want := end()
			eventually(t, "b has the other process", func() bool { return f.pid("b") == want })
			if is := f.Specs()[1]; is.DrainTimeout != 41*time.Second || is.StartTimeout != 42*time.Second {
				t.Errorf("drainTimeout %s, startTimeout %s", is.DrainTimeout, is.StartTimeout)
			}
		})
	}
}

// rollingBack puts b on probation with another configuration, and returns in the middle
// of its rollback, with what the stages were made from before. Done lets that go on.
func (f *fixture) rollingBack(t *testing.T) (p *probation, specs []Spec, done func()) {
	t.Helper()
	swapped := SwapOptions{Rollback: Rollback{Probation: time.Minute}, Change: responding(201)}
	if _, err := f.Swap(t.Context(), "b", swapped); err != nil {
		t.Fatal(err)
	}
	p = f.Supervisor.onProbation()
	specs = f.Specs()
	f.gate.Lock()
	f.running.Go(func() { p.rollBack(hclog.Error, "it is bad") })
	<-p.over
	return p, specs, f.gate.Unlock
}

// TestSwapDuringARollback does not bring back what has just been taken back.
func TestSwapDuringARollback(t *testing.T) {
	t.Parallel()
	f := ready(t, nil)
	p, _, done := f.rollingBack(t)
	swap := make(chan error, 1)
	go func() {
		swapped, err := f.Swap(t.Context(), "c", SwapOptions{Change: changing(func(*Spec) { <-p.over })})
		if err == nil && len(swapped.Also) > 0 {
			t.Errorf("also swapped %q", swapped.Also)
		}
		swap <- err
	}()
	done()
	if err := <-swap; err != nil {
		t.Error(err)
	}
	if f.current("b") != p.moved[0].old || f.Specs()[1].Config["status"] != nil {
		t.Errorf("b is made from %v", f.Specs()[1].Config)
	}
}

// TestRollbackDuringASwap changes what there is after the rollback, and not what there was when the swap was asked for.
func TestRollbackDuringASwap(t *testing.T) {
	t.Parallel()
	f := ready(t, nil)
	if _, err := f.Swap(t.Context(), "b", SwapOptions{Rollback: Rollback{Probation: time.Minute}, Change: responding(201)}); err != nil {
		t.Fatal(err)
	}
	p := f.Supervisor.onProbation()
	bad := errors.New("there is no such file")
	if _, err := f.Swap(t.Context(), "b", SwapOptions{Change: func(*Spec) error { return bad }}); !errors.Is(err, bad) {
		t.Fatal(err)
	}
	if f.Supervisor.onProbation() != p {
		t.Error("a swap that has not begun has ended the probation")
	}
	var seen []any
	if _, err := f.Swap(t.Context(), "b", SwapOptions{Change: changing(func(s *Spec) {
		seen = append(seen, s.Config["status"])
		p.rollBack(hclog.Error, "it is bad")
		s.Env["SWAPPED"] = "yes"
	})}); err != nil {
		t.Fatal(err)
	}
	if want := []any{201, nil}; !slices.Equal(seen, want) {
		t.Errorf("the swap was of %v, want %v", seen, want)
	}
	if is := f.Specs()[1]; is.Config["status"] != nil || is.Env["SWAPPED"] != "yes" {
		t.Errorf("b is made from %+v", is)
	}
}

// TestReloadDuringARollback ends with processes that were made from what is wanted. No
// other test is at work meanwhile, so that the goroutine can be found.
func TestReloadDuringARollback(t *testing.T) {
	f := ready(t, nil)
	_, specs, done := f.rollingBack(t)
	reload := make(chan error, 1)
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
		return strings.Contains(string(stacks[:runtime.Stack(stacks, true)]), "(*changes).Apply")
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
