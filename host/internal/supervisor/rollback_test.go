package supervisor

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/catena-dev/catena/host/internal/canary"
	"github.com/catena-dev/catena/host/internal/generation"
)

// serves reports whether the process with that id responds for b.
func (f *fixture) serves(pid int) bool {
	_, body := f.ask("GET", "/b", "")
	return strings.HasPrefix(body, fmt.Sprint(pid, " "))
}

// responding makes a stage respond with a status.
func responding(code int) func(*Spec) error {
	return changing(func(s *Spec) { s.Config = map[string]any{"log": s.Config["log"], "status": code} })
}

// TestSwapIsRolledBack gives a stage a generation that turns out bad in its probation.
func TestSwapIsRolledBack(t *testing.T) {
	t.Parallel()
	sick := filepath.Join(t.TempDir(), "sick")
	for name, tc := range map[string]struct {
		options SwapOptions
		spoil   func(t *testing.T, f *fixture)
		want    string
	}{
		"errors": {
			SwapOptions{Change: responding(500), Rollback: Rollback{ErrorRate: 0.05, Probation: time.Minute}},
			func(t *testing.T, f *fixture) {
				for range canary.LeastRequests {
					f.ask("GET", "/b", "")
				}
			},
			`requests to stage "b" have failed (100.0%, the limit is 5.0%)`,
		},
		"health": {
			SwapOptions{
				Change:   changing(func(s *Spec) { s.Config = map[string]any{"log": s.Config["log"], "sick": sick} }),
				Rollback: Rollback{Health: true, Probation: time.Minute},
			},
			func(t *testing.T, _ *fixture) {
				if err := os.WriteFile(sick, nil, 0o600); err != nil {
					t.Fatal(err)
				}
			},
			`check "well" of stage "b" fails: it is sick`,
		},
		"crash": {
			SwapOptions{Rollback: Rollback{Probation: time.Minute}},
			func(t *testing.T, f *fixture) {
				if err := syscall.Kill(f.pid("b"), syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
			},
			`the new generation of stage "b" has ended`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := ready(t, nil)
			old := f.pid("b")
			swapped, err := f.Swap(t.Context(), "b", tc.options)
			if err != nil || swapped.Probation != time.Minute {
				t.Fatalf("%+v, %v", swapped, err)
			}
			if st := f.Status()[1]; st.Probation == nil || st.Probation.To != swapped.To || st.LastSwap.Result != "on probation" || len(st.Others) != 1 {
				t.Errorf("on probation, the status is %+v", st)
			}
			tc.spoil(t, f)
			eventually(t, "the old generation serves", func() bool { return f.serves(old) })
			stop := f.clients(t, "/a", "/b", "/c")
			f.settled(t)
			stop()
			st := f.Status()[1]
			if st.Probation != nil || st.Generation != swapped.From || st.LastSwap.Result != "rolled back" || !strings.Contains(st.LastSwap.Reason, tc.want) {
				t.Errorf("status %+v, last swap %+v, want %q", st, st.LastSwap, tc.want)
			}
			if got := f.kinds(SwapRolledBack, SwapAccepted); !slices.Equal(got, []string{"swap-rolled-back b"}) {
				t.Errorf("events %q", got)
			}
			// It is as it was: the next swap begins with it.
			if _, err := f.swap(t, "b", SwapOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestSwapIsAccepted shows what ends a probation well.
func TestSwapIsAccepted(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		probation time.Duration
		end       func(t *testing.T, f *fixture, old int)
		reason    string
	}{
		"time": {200 * time.Millisecond, func(*testing.T, *fixture, int) {}, ""},
		"the old generation ends": {time.Minute, func(t *testing.T, _ *fixture, old int) {
			if err := syscall.Kill(old, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}, "there is no way back"},
		"another change": {time.Minute, func(t *testing.T, f *fixture, _ int) {
			if _, err := f.Swap(t.Context(), "c", SwapOptions{}); err != nil {
				t.Fatal(err)
			}
		}, "another change of the chain has begun"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := ready(t, nil)
			old := f.pid("b")
			swapped, err := f.Swap(t.Context(), "b", SwapOptions{Rollback: Rollback{ErrorRate: 0.5, Health: true, Probation: tc.probation}})
			if err != nil {
				t.Fatal(err)
			}
			stop := f.clients(t, "/b")
			tc.end(t, f, old)
			f.settled(t)
			stop()
			st := f.Status()[1]
			if st.Generation != swapped.To || st.LastSwap.Result != "done" || !strings.Contains(st.LastSwap.Reason, tc.reason) {
				t.Errorf("status %+v, last swap %+v", st, st.LastSwap)
			}
		})
	}
}

// TestUnaskedProbation gives a stage a generation that ends, which nobody has asked to watch: the one before takes its place again. Where
// the stage has a Rollback of its own, that is in force; and any other operation ends the probation.
func TestUnaskedProbation(t *testing.T) {
	t.Parallel()
	f := ready(t, nil)
	options := SwapOptions{Default: Rollback{Probation: time.Minute}}
	swap := func() *Swapped {
		t.Helper()
		swapped, err := f.Swap(t.Context(), "b", options)
		if err != nil || swapped.Probation != time.Minute {
			t.Fatalf("%+v, %v", swapped, err)
		}
		return swapped
	}
	old := f.pid("b")
	swap()
	if err := syscall.Kill(f.pid("b"), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the old generation serves", func() bool { return f.serves(old) })
	f.settled(t)

	swapped := swap()
	end, err := f.Begin(t.Context(), StartShadow, "b")
	if err != nil {
		t.Fatal(err)
	}
	if st := f.Status()[1]; st.Probation != nil || st.Generation != swapped.To || st.LastSwap.Reason != `the start of a shadow of stage "b" has begun` {
		t.Errorf("while a shadow starts: %+v, last swap %+v", st, st.LastSwap)
	}
	end()

	specs := f.Specs()
	specs[1].Rollback = Rollback{Probation: time.Hour}
	if _, err := f.Apply(t.Context(), specs); err != nil {
		t.Fatal(err)
	}
	if swapped, err := f.Swap(t.Context(), "b", options); err != nil || swapped.Probation != time.Hour {
		t.Errorf("with a probation of the stage: %+v, %v", swapped, err)
	}
	if _, err := f.Begin(t.Context(), StartShadow, "b"); !errors.Is(err, ErrBusy) {
		t.Errorf("a shadow beside a probation that was asked for: %v", err)
	}
}

// TestErrorsBelowTheLimitAreNoReason has one request in twenty fail at most.
func TestErrorsBelowTheLimitAreNoReason(t *testing.T) {
	t.Parallel()
	w := &watched{limit: Rollback{ErrorRate: 0.05}, generation: new(generation.Generation)}
	for i := range 1000 {
		if reason := w.count(i%20 == 19); reason != "" {
			t.Fatalf("request %d: %s", i, reason)
		}
	}
	for range 11 {
		w.count(true)
	}
	if w.count(true) == "" {
		t.Error("more than one in twenty")
	}
	few := &watched{limit: Rollback{ErrorRate: 0.05}, generation: new(generation.Generation)}
	for i := range canary.LeastRequests - 1 {
		if few.count(true) != "" {
			t.Errorf("%d requests say nothing", i+1)
		}
	}
}

// TestChainIsRolledBack takes back a change of the order, with a stage that was added
// and one that was removed.
func TestChainIsRolledBack(t *testing.T) {
	t.Parallel()
	f := ready(t, nil)
	specs := f.Specs()
	d := like(specs[1], "d")
	d.Rollback = Rollback{Probation: time.Minute}
	pids := []int{f.pid("a"), f.pid("b"), f.pid("c")}
	if _, err := f.Apply(t.Context(), []Spec{specs[0], specs[2], d}); err != nil {
		t.Fatal(err)
	}
	if status, body := f.ask("GET", "/b", ""); status != http.StatusNotFound {
		t.Errorf("the removed stage: %d %s", status, body)
	}
	if err := syscall.Kill(f.pid("d"), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the chain is what it was", func() bool { return slices.Equal(f.names(), []string{"a", "b", "c"}) })
	f.settled(t)
	if got := []int{f.pid("a"), f.pid("b"), f.pid("c")}; !slices.Equal(got, pids) {
		t.Errorf("processes %v, want %v", got, pids)
	}
	f.clients(t, "/a", "/b", "/c")()
	if err := syscall.Kill(f.pid("b"), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the stage that was removed for a while is restarted as ever", func() bool {
		st := f.Status()[1]
		return st.State == "serving" && st.Restarts == 1
	})
}
