package idle

import (
	"context"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func TestIsIdle(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		used, over time.Duration
		want       bool
	}{
		{0, 5 * time.Second, true}, {100 * time.Millisecond, 5 * time.Second, true}, {300 * time.Millisecond, 5 * time.Second, false},
		{5 * time.Second, 5 * time.Second, false}, {300 * time.Millisecond, 20 * time.Second, true},
	} {
		if isIdle(tc.used, tc.over) != tc.want {
			t.Errorf("%s in %s: not %v", tc.used, tc.over, tc.want)
		}
	}
}

// The number of processors is the process's: the cases run in processes of their own, one after the other.
func TestRun(t *testing.T) {
	const ran = "PASS: TestRun/"
	cases := map[string]func(*testing.T){
		"rests and works": restAndWork, "kept": keptNumber, "set at rest": setAtRest, "set between rests": setBetweenRests,
		"set by the program": ownNumber, "set by the environment": ownNumber, "work": realWork,
	}
	if name := os.Getenv("IDLE_TEST"); name != "" {
		t.Run(name, cases[name])
		return
	}
	if runtime.NumCPU() == 1 {
		t.Skip("there is one processor")
	}
	t.Parallel()
	for name := range cases {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestRun$", "-test.v")
		cmd.Env = append(os.Environ(), "IDLE_TEST="+name)
		if name == "set by the environment" {
			cmd.Env = append(cmd.Env, "GOMAXPROCS=3")
		}
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), ran) {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}

// running is a Program that runs in a bubble of synctest, with signals of the test.
type running struct {
	Program
	t      *testing.T
	timer  atomic.Bool // whether it runs
	cancel context.CancelFunc
}

// inBubble calls a test with a Program that runs.
func inBubble(t *testing.T, oneProcessor bool, test func(*running)) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		r := &running{t: t, cancel: cancel, Program: Program{OneProcessor: oneProcessor}}
		r.signals = func(chan<- os.Signal) func() {
			r.timer.Store(true)
			return func() { r.timer.Store(false) }
		}
		go r.Run(ctx)
		defer synctest.Wait()
		defer cancel()
		test(r)
	})
}

// want checks the number of processors.
func (r *running) want(after string, number int) {
	r.t.Helper()
	synctest.Wait()
	if got := runtime.GOMAXPROCS(0); got != number {
		r.t.Errorf("%s: %d processors, want %d", after, got, number)
	}
}

// idle passes the time after which a program rests.
func (r *running) idle() {
	time.Sleep(interval)
	synctest.Wait()
}

// restAndWork has the program rest, and each kind of work end that.
func restAndWork(t *testing.T) {
	all := runtime.GOMAXPROCS(0)
	inBubble(t, true, func(r *running) {
		r.want("at the start", all)
		r.idle()
		r.want("idle", 1)
		for range 20 {
			time.Sleep(quantumTime + time.Millisecond)
			r.spent <- syscall.SIGVTALRM
		}
		r.want("work in small pieces", 1)
		time.Sleep(quantumTime)
		r.spent <- syscall.SIGVTALRM
		r.want("work without a pause", all)
		if r.timer.Load() {
			t.Error("the timer goes on")
		}
		r.idle()
		r.want("idle again", 1)
		for from := processorTime(); processorTime()-from < 2*interval/20; { //nolint:revive // works
		}
		time.Sleep(interval)
		r.want("work of seconds", all)
		r.idle()
		r.want("idle once more", 1)
		r.cancel()
		r.want("the end", all)
	})
}

// ownNumber has a program rest whose number of processors is not Go's.
func ownNumber(t *testing.T) {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(3)
	}
	inBubble(t, true, func(r *running) {
		r.idle()
		r.idle()
		r.want("idle", 3)
	})
}

func setAtRest(t *testing.T) {
	inBubble(t, true, func(r *running) {
		r.idle()
		r.want("idle", 1)
		runtime.GOMAXPROCS(3)
		r.idle()
		r.want("idle, with a number of its own", 3)
		r.cancel()
		r.want("the end", 3)
	})
	inBubble(t, true, func(r *running) {
		runtime.SetDefaultGOMAXPROCS()
		r.idle()
		r.want("idle", 1)
		runtime.GOMAXPROCS(3)
		r.spent <- syscall.SIGVTALRM
		r.want("work", 3)
	})
}

func setBetweenRests(t *testing.T) {
	inBubble(t, true, func(r *running) {
		for _, own := range []int{3, 4} {
			runtime.SetDefaultGOMAXPROCS()
			r.idle()
			r.want("idle", 1)
			r.spent <- syscall.SIGVTALRM
			synctest.Wait()
			runtime.GOMAXPROCS(own)
			r.idle()
			r.idle()
			r.want("idle, with a number of its own", own)
		}
	})
}

func keptNumber(t *testing.T) {
	all := runtime.GOMAXPROCS(0)
	inBubble(t, false, func(r *running) {
		r.idle()
		r.idle()
		r.want("idle", all)
	})
}

// realWork has the system's own timer end a rest.
func realWork(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("there is no such timer")
	}
	all := runtime.GOMAXPROCS(0)
	p := Program{OneProcessor: true, signals: signalUse, spent: make(chan os.Signal, 1)}
	p.rest()
	if got := runtime.GOMAXPROCS(0); got != 1 {
		t.Fatalf("at rest: %d processors", got)
	}
	var ended atomic.Bool
	defer ended.Store(true)
	from := processorTime()
	go func() {
		for !ended.Load() { //nolint:revive // works
		}
	}()
	for deadline := time.After(20 * time.Second); p.resting; {
		select {
		case at := <-p.spent:
			t.Logf("%s after %s of work", at, processorTime()-from)
			p.spentQuantum(time.Now())
		case <-deadline:
			t.Fatal("the program rests, although it works")
		}
	}
	if got := runtime.GOMAXPROCS(0); got != all {
		t.Errorf("%d processors, want %d", got, all)
	}
}
