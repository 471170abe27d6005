//go:build linux

package supervisor

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/catena-dev/catena/host/internal/callers"
	"github.com/catena-dev/catena/host/internal/cgroup"
	"github.com/catena-dev/catena/host/internal/process"
	"github.com/catena-dev/catena/host/internal/usage"
)

// limit gives stage b limits of memory, in MiB.
func limit(soft, hard int64) func(*options) {
	return func(o *options) { o.Chain[1].Limits = Limits{MemorySoft: soft << 20, Memory: hard << 20} }
}

// reached are the limits that were reached, as "LIMIT GENERATION".
func (f *fixture) reached() []string {
	f.Supervisor.events.flush()
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []string
	for _, e := range f.happened {
		if e.Kind == LimitReached {
			all = append(all, e.Limit+" "+e.Generation)
		}
	}
	return all
}

// TestStageAtItsSoftLimitIsSwapped makes a stage use more than its soft limit while
// clients are at work: it gets a fresh process, and no request fails.
func TestStageAtItsSoftLimitIsSwapped(t *testing.T) {
	t.Parallel()
	f := ready(t, limit(192, 2048))
	old := f.current("b")
	stop := f.clients(t, "/a", "/b", "/c")
	if status, body := f.ask("GET", "/b?hold=256", ""); status != http.StatusOK {
		t.Fatalf("%d %s", status, body)
	}
	eventually(t, "b is swapped", func() bool { return f.current("b") != old })
	eventually(t, "the swap is over", func() bool { return !f.changeIsUnderWay() })
	stop()
	f.settled(t)
	if got, want := f.reached(), []string{LimitMemorySoft + " " + old.ID()}; !slices.Equal(got, want) {
		t.Errorf("reached %q, want %q", got, want)
	}
	last := f.Status()[1].LastSwap
	if last == nil || last.Result != "done" || !strings.Contains(last.Reason, "the limit of 192.0 MiB (stages.b.limits.memorySoft)") {
		t.Errorf("the latest swap is %+v", last)
	}
	if st := f.Status()[1]; st.Restarts != 0 || st.Failure != "" {
		t.Errorf("status %+v", st)
	}
}

// TestStageAtItsHardLimitIsKilled makes a stage use more than its limit at once.
func TestStageAtItsHardLimitIsKilled(t *testing.T) {
	t.Parallel()
	f := ready(t, limit(0, 192))
	old := f.current("b")
	_, _ = f.ask("POST", "/b?hold=256", "") // it may have ended before it responds
	eventually(t, "b has another process", func() bool { return f.current("b") != old && f.Status()[1].State == "serving" })
	if status, body := f.ask("GET", "/b", ""); status != http.StatusOK {
		t.Errorf("%d %s", status, body)
	}
	st := f.Status()[1]
	if want := "(stages.b.limits.memory)"; st.Restarts != 1 || !strings.Contains(st.Failure, "was killed by this host: its memory of ") || !strings.Contains(st.Failure, want) {
		t.Errorf("restarts %d, failure %q, want 1 and %q in it", st.Restarts, st.Failure, want)
	}
	if got, want := f.reached(), []string{LimitMemory + " " + old.ID()}; !slices.Equal(got, want) {
		t.Errorf("reached %q, want %q", got, want)
	}
}

// TestStageThatNeedsMoreThanItsSoftLimitIsSwappedOnce has each process of a stage come to the
// soft limit at once.
func TestStageThatNeedsMoreThanItsSoftLimitIsSwappedOnce(t *testing.T) {
	t.Parallel()
	f := ready(t, func(o *options) {
		limit(192, 0)(o)
		o.Chain[1].Config["hold"] = "256"
	})
	eventually(t, "two processes have come to the limit", func() bool { return len(f.reached()) == 2 })
	eventually(t, "the swap is over", func() bool { return !f.changeIsUnderWay() })
	swapped := time.Now()
	l := &limiter{supervisor: f.Supervisor, swaps: map[*stage]*swapPace{}}
	held := f.lock()
	st, err := held.stage("b")
	held.unlock()
	if err != nil {
		t.Fatal(err)
	}
	l.swaps[st] = &swapPace{backoff: softSwaps()}
	l.swaps[st].swapped(swapped, time.Second)
	for i, after := range []time.Duration{time.Second, 59 * time.Second, time.Minute} { // of which the last is late enough
		if _, err := l.look(swapped.Add(after)); err != nil {
			t.Fatal(err)
		}
		if got, want := f.changeIsUnderWay(), i == 2; got != want {
			t.Errorf("%s after a swap another one is under way: %t", after, got)
		}
	}
	eventually(t, "the other swap is over", func() bool { return !f.changeIsUnderWay() })
	if n := len(f.kinds(SwapBegun)); n != 2 {
		t.Errorf("%d swaps have begun, want 2", n)
	}
	if status, body := f.ask("GET", "/b", ""); status != http.StatusOK {
		t.Errorf("%d %s", status, body)
	}
}

// TestSwapPace has the swaps of a stage at its soft limit come less and less often, unless
// its processes live long.
func TestSwapPace(t *testing.T) {
	t.Parallel()
	p, now := &swapPace{backoff: softSwaps()}, time.Now()
	var delays []time.Duration
	for _, ran := range []time.Duration{time.Hour, time.Second, time.Minute, time.Minute, time.Minute, time.Minute, time.Minute, time.Minute, 20 * time.Minute, 20 * time.Minute} {
		p.swapped(now, ran)
		delays = append(delays, p.next.Sub(now)/time.Minute)
	}
	if want := []time.Duration{1, 2, 4, 8, 16, 32, 60, 60, 1, 1}; !slices.Equal(delays, want) {
		t.Errorf("delays are %d minutes, want %d", delays, want)
	}
}

// TestLimitsApplyToRunningProcesses changes the limits of a stage, which is no reason for
// another process, until it is beyond them.
func TestLimitsApplyToRunningProcesses(t *testing.T) {
	t.Parallel()
	f := ready(t, func(o *options) { o.Chain[1].Config["hold"] = "256" })
	old := f.current("b")
	specs := f.Specs()
	limit(0, 4096)(&options{Options: Options{Chain: specs}})
	if applied, err := f.Apply(t.Context(), specs); err != nil || len(applied.Swapped) != 0 {
		t.Fatalf("%+v, %v", applied, err)
	}
	if f.current("b") != old {
		t.Error("b has another process")
	}
	specs = f.Specs()
	limit(0, 128)(&options{Options: Options{Chain: specs}})
	if _, err := f.Apply(t.Context(), specs); err != nil {
		t.Fatal(err)
	}
	eventually(t, "b is killed", func() bool { return strings.Contains(f.Status()[1].Failure, "limits.memory") })
}

// TestLimitedLeavesOutWhatHasNoLimit shows that nothing is measured in vain.
func TestLimitedLeavesOutWhatHasNoLimit(t *testing.T) {
	t.Parallel()
	f := ready(t, limit(0, 4096))
	if all := f.limited(); len(all) != 1 || all[0].Name() != "b" || !all[0].serving {
		t.Errorf("limited are %v", all)
	}
}

// TestOpenFilesAreLimited asks a stage for the limit that is in force.
func TestOpenFilesAreLimited(t *testing.T) {
	t.Parallel()
	f := ready(t, func(o *options) { o.Chain[1].OpenFiles = 100 })
	if _, body := f.ask("GET", "/b?files=1", ""); body != "100 100 " {
		t.Errorf("the limits of b are %q, want 100 100", body)
	}
	if _, body := f.ask("GET", "/c?files=1", ""); strings.HasPrefix(body, "100 ") {
		t.Errorf("the limits of c are %q", body)
	}
	specs := f.Specs()
	specs[1].OpenFiles = 200
	if applied, err := f.Apply(t.Context(), specs); err != nil || !slices.Equal(applied.Swapped, []string{"b"}) {
		t.Fatalf("%+v, %v", applied, err)
	}
	if _, body := f.ask("GET", "/b?files=1", ""); body != "200 200 " {
		t.Errorf("the limits of b are %q, want 200 200", body)
	}
}

// TestKernelLimitsTakeAnotherProcess changes limits that are those of a process' group.
func TestKernelLimitsTakeAnotherProcess(t *testing.T) {
	t.Parallel()
	f := ready(t, nil)
	specs := f.Specs()
	specs[1].KernelLimits.PIDs = 100
	if applied, err := f.Apply(t.Context(), specs); err != nil || !slices.Equal(applied.Swapped, []string{"b"}) {
		t.Fatalf("%+v, %v", applied, err)
	}
}

// TestKernelKillsAtTheLimit has the end of a process reported that the kernel has ended at its
// limit of memory, as one that the host has.
func TestKernelKillsAtTheLimit(t *testing.T) {
	t.Parallel()
	f := ready(t, nil)
	g := f.current("b")
	for _, c := range []struct {
		exit process.ExitError
		want []string
	}{{process.ExitError{}, nil}, {process.ExitError{Limit: cgroup.Memory, Why: "its memory reached the limit"}, []string{LimitMemory + " " + g.ID()}}} {
		f.order()[1].live(g).killedAtLimit(&c.exit)
		if got := f.reached(); !slices.Equal(got, c.want) {
			t.Errorf("%+v: reached %q, want %q", c.exit, got, c.want)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if last := f.happened[len(f.happened)-1]; last.Reason != "its memory reached the limit" {
		t.Errorf("the event is %+v", last)
	}
}

// TestLimitsOfTheKernelAreCounted has each count that has grown be one event, if there is a limit.
func TestLimitsOfTheKernelAreCounted(t *testing.T) {
	t.Parallel()
	all := cgroup.Limits{Memory: 1, CPU: 1, PIDs: 1}
	for _, c := range []struct {
		limits      cgroup.Limits
		before, now cgroup.Reached
		want        []string
	}{
		{all, cgroup.Reached{}, cgroup.Reached{}, nil},
		{all, cgroup.Reached{}, cgroup.Reached{Memory: 1, CPU: 7, PIDs: 2}, []string{"cpu", "pids"}},
		{all, cgroup.Reached{CPU: 7, PIDs: 2}, cgroup.Reached{CPU: 7, PIDs: 3}, []string{"pids"}},
		{cgroup.Limits{PIDs: 1}, cgroup.Reached{}, cgroup.Reached{CPU: 7}, nil},
	} {
		if got := more(c.limits, c.before, c.now); !slices.Equal(got, c.want) {
			t.Errorf("%+v: %q", c, got)
		}
	}
}

// TestUsageOutlivesProcesses measures a stage, whose time must not decrease when its process
// is another.
func TestUsageOutlivesProcesses(t *testing.T) {
	t.Parallel()
	f := ready(t, nil)
	_, _ = f.ask("GET", "/b?hold=64", "")
	measure := func() StageUsage {
		t.Helper()
		if _, err := f.measure(); err != nil {
			t.Fatal(err)
		}
		return f.Usage()[1]
	}
	before := measure()
	if before.Stage != "b" || before.Memory < 64<<20 || before.CPU <= 0 {
		t.Fatalf("usage is %+v", before)
	}
	st := f.MeasuredStatus()[1]
	if st.Usage == nil || st.Usage.MemoryBytes < 64<<20 || st.Usage.CPUSeconds <= 0 {
		t.Errorf("usage in the status is %+v", st.Usage)
	}
	for range 3 {
		dead := f.pid("b")
		kill(t, dead)
		eventually(t, "b is back", func() bool { return f.pid("b") != dead && f.Status()[1].State == "serving" })
		after := measure()
		if after.CPU < before.CPU {
			t.Errorf("the time has decreased from %s to %s", before.CPU, after.CPU)
		}
		before = after
	}
	if before.Memory > 64<<20 {
		t.Errorf("the memory of the dead process still counts: %d bytes", before.Memory)
	}
	held := f.lock()
	defer held.unlock()
	for _, st := range held.chain {
		if len(st.guarded.used) != 1 {
			t.Errorf("stage %s has %d measured processes, want 1", st.name, len(st.guarded.used))
		}
	}
}

func TestNearProcessesAreWatched(t *testing.T) {
	t.Parallel()
	limits := Limits{MemorySoft: 100, Memory: 200}
	for _, c := range []struct {
		bytes    int64
		softDone bool
		want     bool
	}{{50, false, false}, {80, false, true}, {100, true, false}, {149, true, false}, {160, true, true}} {
		w := watchedMemory{usage: usage.Usage{Memory: c.bytes}}
		if c.softDone {
			w.softAt = time.Now()
		}
		if got := w.near(limits); got != c.want {
			t.Errorf("%s: near is %t", fmt.Sprint(c), got)
		}
	}
}

// TestLimitsNotInForce reports that processes cannot be measured, and that they can be again, once each; where they never can, there is one report.
func TestLimitsNotInForce(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		errs []error
		want []string
	}{
		{[]error{nil, syscall.EMFILE, syscall.ENFILE, nil, nil, syscall.EMFILE, nil},
			[]string{"limits-not-in-force too many open files", "limits-in-force ", "limits-not-in-force too many open files", "limits-in-force "}},
		{[]error{usage.ErrUnsupported}, []string{"limits-not-in-force " + usage.ErrUnsupported.Error()}},
	} {
		synctest.Test(t, func(t *testing.T) {
			var got []string
			s, err := New(callers.New(nil), Options{
				DataDir: t.TempDir(), Log: hclog.NewNullLogger(),
			})
			if err != nil {
				t.Fatal(err)
			}
			s.events.report = func(e Event) { got = append(got, string(e.Kind)+" "+e.Reason) }
			looks := 0
			(&limiter{supervisor: s}).repeat(func(time.Time) (time.Duration, error) {
				err := c.errs[looks]
				if looks++; looks == len(c.errs) {
					s.cancel()
				}
				return sampleInterval, err
			})
			s.events.flush()
			if !slices.Equal(got, c.want) || looks != len(c.errs) {
				t.Errorf("%d looks, %q, want %q", looks, got, c.want)
			}
		})
	}
}
