package supervisor

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/catena-dev/catena/host/internal/canary"
)

// shares returns a plan of steps that each take the given time.
func shares(each time.Duration, shares ...float64) *canary.Plan {
	return &canary.Plan{Shares: shares, For: each, By: canary.Client}
}

// sides asks for b as many clients, and returns which process each has.
func (f *fixture) sides(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for i := range 40 {
		client := fmt.Sprint("client-", i)
		status, body := f.ask("GET", "/b?client="+client, "")
		if status != http.StatusOK {
			t.Errorf("%s: %d %s", client, status, body)
		}
		all[client], _, _ = strings.Cut(body, " ")
	}
	return all
}

// processes are those that clients have.
func processes(sides map[string]string) []string {
	return slices.Compact(slices.Sorted(maps.Values(sides)))
}

// TestCanary lets the share of a new generation grow.
func TestCanary(t *testing.T) {
	t.Parallel()
	f := ready(t, nil)
	old, steps := fmt.Sprint(f.pid("b")), []float64{0.25, 0.75, 1}
	swapped, err := f.Swap(t.Context(), "b", SwapOptions{Canary: shares(time.Hour, steps...)})
	if err != nil || swapped.Canary == nil || !slices.Equal(swapped.Also, []string{"a"}) { // each side of b has its own a
		t.Fatalf("%+v, %v", swapped, err)
	}
	next := fmt.Sprint(f.pid("b"))
	stop := f.clients(t, "/a", "/b?client=client-1", "/c")
	moved := map[string]bool{}
	p := f.Supervisor.onProbation()
	for step, share := range steps {
		if step > 0 {
			eventually(t, "the new process has had enough requests", func() bool { f.sides(t); return f.Status()[1].Probation.Canary.Difference.Lacking() == 0 })
			p.advance(p.canary.until.Add(-time.Nanosecond)) // not yet
			if now := f.Status()[1].Probation.Canary.Step; now != step-1 {
				t.Fatalf("step %d has begun while step %d lasts", now, step-1)
			}
			p.advance(p.canary.until)
		}
		if now := f.Status()[1].Probation; now == nil || now.Canary == nil || now.Canary.Step != step {
			t.Fatalf("%+v, want step %d", now, step)
		}
		for client, pid := range f.sides(t) {
			if want := canary.Includes(client, share); pid != map[bool]string{false: old, true: next}[want] {
				t.Errorf("at %g %s has the process %s; the old one is %s, the new one %s", share, client, pid, old, next)
			}
			if moved[client] && pid == old {
				t.Errorf("%s went back", client)
			}
			moved[client] = moved[client] || pid == next
		}
	}
	p.accept("")
	f.settled(t)
	stop()
	if got := processes(f.sides(t)); !slices.Equal(got, []string{next}) {
		t.Errorf("after the canary, clients have the processes %v, not %s alone", got, next)
	}
	if st := f.Status()[1]; st.Probation != nil || st.LastSwap.Result != "done" {
		t.Errorf("%+v, last swap %+v", st, st.LastSwap)
	}
	if got, want := f.kinds(CanaryStep, SwapDone, SwapAccepted, SwapRolledBack), []string{
		"canary-step a", "canary-step b", "canary-step a", "canary-step b", "canary-step a", "canary-step b", "swap-done a", "swap-done b",
	}; !slices.Equal(got, want) {
		t.Errorf("events %q, want %q", got, want)
	}
}

// TestCanaryWaits shows that a share does not grow before the new generation has had requests to be judged by, however long that takes.
func TestCanaryWaits(t *testing.T) {
	t.Parallel()
	f := ready(t, nil)
	const each = time.Hour
	if _, err := f.Swap(t.Context(), "b", SwapOptions{Canary: shares(each, 0.5, 0.75, 1)}); err != nil {
		t.Fatal(err)
	}
	p := f.Supervisor.onProbation()
	begun := p.canary.until.Add(-each)
	for _, late := range []time.Duration{each, 2 * each, 10 * each} {
		p.advance(begun.Add(late))
		if c := f.Status()[1].Probation.Canary; c.Step != 0 || !c.Waits || c.Difference.Lacking() != canary.LeastRequests {
			t.Fatalf("%s after its begin, without a request: %+v", late, c)
		}
		if p.left() <= 0 {
			t.Fatalf("%s after its begin, without a request, it is accepted", late)
		}
	}
	eventually(t, "the new process has had enough requests", func() bool { f.sides(t); return f.Status()[1].Probation.Canary.Difference.Lacking() == 0 })
	at := begun.Add(20 * each)
	p.advance(at)
	now := f.Status()[1].Probation
	if c := now.Canary; c.Step != 1 || c.Waits || !c.Until.Equal(at.Add(each)) || !now.Until.Equal(at.Add(2*each)) {
		t.Errorf("with enough requests: %+v, until %s", c, now.Until)
	}
	p.advance(at.Add(each)) // the requests of a step count for that step
	if c := f.Status()[1].Probation.Canary; c.Step != 1 || !c.Waits {
		t.Errorf("in the second step, without a request: %+v", c)
	}
}

// TestCanaryEnds ends a canary in each way, with clients on both sides none of whose requests may fail.
func TestCanaryEnds(t *testing.T) {
	t.Parallel()
	half := func() *canary.Plan { return shares(time.Hour, 0.5, 1) }
	for name, tc := range map[string]struct {
		options SwapOptions
		end     func(t *testing.T, f *fixture, old, next int)
		stays   bool
		reason  string
		result  string
	}{
		"promoted": {SwapOptions{}, func(t *testing.T, f *fixture, _, _ int) {
			if err := f.Conclude("b", true); err != nil {
				t.Error(err)
			}
		}, true, "it was asked for", "done"},
		"reverted": {SwapOptions{}, func(t *testing.T, f *fixture, _, _ int) {
			if err := f.Conclude("b", false); err != nil {
				t.Error(err)
			}
		}, false, "it was asked for", "reverted"},
		"the new generation ends": {SwapOptions{}, func(t *testing.T, _ *fixture, _, next int) {
			if err := syscall.Kill(next, syscall.SIGKILL); err != nil {
				t.Error(err)
			}
		}, false, `the new generation of stage "b" has ended`, "rolled back"},
		"the old generation ends": {SwapOptions{}, func(t *testing.T, _ *fixture, old, _ int) {
			if err := syscall.Kill(old, syscall.SIGKILL); err != nil {
				t.Error(err)
			}
		}, true, "there is no way back", "done"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := ready(t, nil)
			old := f.pid("b")
			tc.options.Canary = half()
			if _, err := f.Swap(t.Context(), "b", tc.options); err != nil {
				t.Fatal(err)
			}
			next := f.pid("b")
			if got := processes(f.sides(t)); len(got) != 2 {
				t.Fatalf("clients have the processes %v", got)
			}
			var paths []string
			for i := range 8 {
				paths = append(paths, fmt.Sprintf("/b?client=client-%d", i))
			}
			reads := f.clientsThat(t, []string{"GET"}, paths...)
			tc.end(t, f, old, next)
			f.settled(t)
			reads()
			want := map[bool]int{false: old, true: next}[tc.stays]
			if got := processes(f.sides(t)); !slices.Equal(got, []string{fmt.Sprint(want)}) {
				t.Errorf("clients have the processes %v, want %d", got, want)
			}
			st := f.Status()[1]
			because := strings.Contains(st.LastSwap.Reason, tc.reason)
			if st.Probation != nil || st.LastSwap.Result != tc.result || !because {
				t.Errorf("%+v, last swap %+v, want %s: %s", st, st.LastSwap, tc.result, tc.reason)
			}
			if err := f.Conclude("b", true); err == nil || !strings.Contains(err.Error(), "no canary is under way") {
				t.Errorf("once more: %v", err)
			}
			if _, err := f.swap(t, "b", SwapOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestCanaryDoesWorse takes a canary back whose requests fail, which is compared with the old side.
func TestCanaryDoesWorse(t *testing.T) {
	t.Parallel()
	half := shares(time.Hour, 0.5, 1)
	for name, tc := range map[string]struct {
		old, next int
		plan      *canary.Plan
		stays     bool
	}{
		"the new side fails":              {http.StatusOK, http.StatusInternalServerError, half, false},
		"the new side fails, and has all": {http.StatusOK, http.StatusInternalServerError, shares(time.Hour, 1), false},
		"both sides fail":                 {http.StatusInternalServerError, http.StatusInternalServerError, half, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := ready(t, func(o *options) { responding(tc.old)(&o.Chain[1]) })
			old := f.pid("b")
			if _, err := f.Swap(t.Context(), "b", SwapOptions{Change: responding(tc.next), Canary: tc.plan}); err != nil {
				t.Fatal(err)
			}
			next := f.pid("b")
			for i := range 400 {
				f.ask("GET", fmt.Sprintf("/b?client=client-%d", i), "")
			}
			if tc.stays {
				p := f.Status()[1].Probation
				if p == nil || p.Canary == nil || p.Canary.Difference.New.Failed < 100 || p.Canary.Difference.Failed != 0 {
					t.Errorf("%+v", p)
				}
				if reason := f.Supervisor.onProbation().canary.exceeded(); reason != "" || f.pid("b") != next {
					t.Errorf("the canary is taken back: %s", reason)
				}
				return
			}
			eventually(t, "the canary is taken back", func() bool { return f.pid("b") == old })
			last := f.Status()[1].LastSwap
			if last.Result != "rolled back" || !strings.Contains(last.Reason, "(the limit is 1%)") {
				t.Errorf("%+v", last)
			}
		})
	}
}

// TestNothingChangesDuringACanary shows that it does not end by accident.
func TestNothingChangesDuringACanary(t *testing.T) {
	t.Parallel()
	f := ready(t, nil)
	if _, err := f.Swap(t.Context(), "b", SwapOptions{Canary: shares(time.Hour, 0.5, 1)}); err != nil {
		t.Fatal(err)
	}
	next := f.pid("b")
	for _, name := range []string{"a", "b"} {
		if _, err := f.Swap(t.Context(), name, SwapOptions{}); !errors.Is(err, ErrBusy) || !strings.Contains(err.Error(), `a canary of stage "b" is under way`) {
			t.Errorf("swap of %s: %v", name, err)
		}
	}
	specs := f.Specs()
	if _, err := f.Apply(t.Context(), specs[1:]); !errors.Is(err, ErrBusy) {
		t.Errorf("a stage is removed: %v", err)
	}
	specs[0].DrainTimeout++
	if _, err := f.Apply(t.Context(), specs); err != nil {
		t.Errorf("what needs no other process: %v", err)
	}
	kill(t, f.pid("c"))
	eventually(t, "c is back", func() bool {
		status, _ := f.ask("GET", "/c", "")
		return status == http.StatusOK && len(f.kinds(Restarted)) == 1
	})
	if got := processes(f.sides(t)); len(got) != 2 || f.pid("b") != next {
		t.Errorf("clients have the processes %v", got)
	}
	if err := f.Conclude("c", true); err == nil {
		t.Error("the canary of b was ended as one of c")
	}
}

// mainPID is the process whose health checks and metrics are those of b.
func (f *fixture) mainPID(t *testing.T) int {
	t.Helper()
	held := f.lock()
	defer held.unlock()
	st, err := held.stage("b")
	if err != nil {
		t.Fatal(err)
	}
	return held.main(st).PID()
}

// TestMainDuringACanary shows whose health checks and metrics are those of the stage, until all clients have moved and when the canary is taken back.
func TestMainDuringACanary(t *testing.T) {
	t.Parallel()
	f := ready(t, nil)
	old := f.pid("b")
	half := SwapOptions{Canary: shares(time.Hour, 0.5, 1)}
	if _, err := f.Swap(t.Context(), "b", half); err != nil {
		t.Fatal(err)
	}
	if next, got := f.pid("b"), f.mainPID(t); next == old || got != old {
		t.Errorf("at 50%% they are those of %d, not of the old process %d; the new one is %d", got, old, next)
	}
	f.EndCanary("because")
	f.settled(t)
	if got := f.mainPID(t); got != old {
		t.Errorf("after the end they are those of %d, not of %d", got, old)
	}
	if last := f.Status()[1].LastSwap; last.Result != "rolled back" || !strings.Contains(last.Reason, "because") {
		t.Errorf("%+v", last)
	}
	if _, err := f.Swap(t.Context(), "b", half); err != nil {
		t.Fatal(err)
	}
	if err := f.Conclude("b", true); err != nil {
		t.Fatal(err)
	}
	f.settled(t)
	if next, got := f.pid("b"), f.mainPID(t); next == old || got != next {
		t.Errorf("promoted, they are those of %d, not of the new process %d", got, next)
	}
	if _, err := f.Swap(t.Context(), "b", SwapOptions{Canary: shares(time.Hour, 1)}); err != nil {
		t.Fatal(err)
	}
	if next, got := f.pid("b"), f.mainPID(t); f.Status()[1].Probation == nil || got != next {
		t.Errorf("at 100%% they are those of %d, not of the new process %d", got, next)
	}
}
