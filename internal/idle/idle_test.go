package idle

import (
	"context"
	"os"
	"os/exec"
	"runtime"
	"strings"
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
		"rests and works": restAndWork, "kept": keptNumber,
		"set by the program": ownNumber, "set by the environment": ownNumber,
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

// restAndWork has the program rest, and each kind of work end that.
func restAndWork(t *testing.T) {
	all := runtime.GOMAXPROCS(0)
	synctest.Test(t, func(t *testing.T) {
		var p Program
		ctx, cancel := context.WithCancel(t.Context())
		go p.Run(ctx)
		number := func(after string, want int) {
			t.Helper()
			synctest.Wait()
			if got := runtime.GOMAXPROCS(0); got != want {
				t.Errorf("%s: %d processors, want %d", after, got, want)
			}
		}
		rest := func() {
			t.Helper()
			time.Sleep(interval)
			number("idle", 1)
		}
		p.Request()
		number("at the start", all)
		rest()
		for range 10 * burst {
			time.Sleep(burstTime / 2)
			p.Request()
		}
		number("now and then a request", 1)
		time.Sleep(burstTime)
		for range burst {
			p.Request()
		}
		number("a burst of requests", all)
		rest()
		for from := processorTime(); processorTime()-from < 2*interval/20; { //nolint:revive // works
		}
		time.Sleep(interval)
		number("work without requests", all)
		rest()
		cancel()
		number("the end", all)
	})
}

// ownNumber has a program rest whose number of processors is not Go's.
func ownNumber(t *testing.T) {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(3)
	}
	synctest.Test(t, func(t *testing.T) {
		var p Program
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go p.Run(ctx)
		time.Sleep(3 * interval)
		synctest.Wait()
		for range burst {
			p.Request()
		}
		synctest.Wait()
		if got := runtime.GOMAXPROCS(0); got != 3 {
			t.Errorf("%d processors, want 3", got)
		}
	})
}

func keptNumber(t *testing.T) {
	all := runtime.GOMAXPROCS(0)
	synctest.Test(t, func(t *testing.T) {
		p := Program{KeepProcessors: true}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go p.Run(ctx)
		time.Sleep(3 * interval)
		synctest.Wait()
		if got := runtime.GOMAXPROCS(0); got != all {
			t.Errorf("%d processors, want %d", got, all)
		}
	})
}
