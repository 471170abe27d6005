// Package chaos shows that stages can die, hang, be swapped, added, moved and removed
// while clients go on. Real clients write, read, watch and hold exec streams without a
// pause, while random events, from a printed seed, hit a stage or the chain, some of them
// during a swap. In the end every acknowledged write must be stored, every informer must
// have received an event of each, or a list with it, and must have the final state of each
// object, no request may have been executed twice, no object that exists may ever have been
// "not found", no user may have been taken for another, no request may have failed because
// of a planned change, and the host must not have leaked anything. It has few descriptors, and little memory.
//
//	go test ./test/chaos -v -run RandomEvents -chaos.for=30m -chaos.seed=7
package chaos

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

var (
	duration = flag.Duration("chaos.for", 0, "how long random events go on; that test is skipped without it")
	seed     = flag.Uint64("chaos.seed", 0, "seed of the events; 0 takes one at random")
	only     = flag.String("chaos.only", "", "part of the names of the events that are played; all without it")
)

// Every kind of event, once.
func TestEveryEvent(t *testing.T) {
	stage := map[string]string{
		"swap": "core", "new binary": "extensions", "killed": "core", "bad binary": "core", "swap and reload": "aggregator",
		"standby on": "extensions", "killed, standby": "extensions", "standby off": "extensions", "suspended": "extensions",
		"killed in swap": "extensions", "both killed": "aggregator", "canary": "core", "killed in canary": "core",
	}
	run(t, func(s *site, happen func(event, string)) {
		for _, e := range events() {
			name := stage[e.kind]
			if name == "" {
				name = passers[0]
			}
			happen(e, name)
		}
	})
}

// Random events for a given time. The seed determines the events, their order, stages and
// parameters; how long they take depends on the machine.
func TestRandomEvents(t *testing.T) {
	if *duration == 0 {
		t.Skip("run it with make chaos, or with -chaos.for")
	}
	all, stages := events(), slices.Concat(kube, passers)
	if *only != "" {
		all = slices.DeleteFunc(all, func(e event) bool { return !strings.Contains(e.kind, *only) })
	}
	run(t, func(s *site, happen func(event, string)) {
		for end := time.Now().Add(*duration); time.Now().Before(end) && !t.Failed(); {
			happen(all[s.random.IntN(len(all))], stages[s.random.IntN(len(stages))])
			time.Sleep(time.Duration(s.random.IntN(1000)) * time.Millisecond)
		}
	})
}

// run causes the events that are possible, and judges what the clients saw.
func run(t *testing.T, play func(s *site, happen func(e event, stage string))) {
	s := newSite(t, "")
	c, err := startClients(t.Context(), s.Config, s.Catena)
	if err != nil {
		t.Fatal(err)
	}
	defer c.stop()
	c.forget() // failures while the clients were prepared, such as those of requests for a new definition
	before, err := holdingsOf(t.Context(), s, c)
	if err != nil {
		t.Fatal(err)
	}
	r := &report{}
	peak := 0
	play(s, func(e event, stage string) {
		if e.possible == nil || e.possible(s, stage) {
			happen(t, s, c, r, e, stage)
			peak = max(peak, peakMemory(t, s)) // after each: an upgrade of the host forgets the peak
		}
	})
	began := time.Now()
	if err := s.restore(t.Context()); err != nil {
		t.Error(err)
	}
	r.happened(event{kind: "restored"}, "", began, time.Now(), c)
	after, err := awaitHoldings(t.Context(), s, c, before)
	if err != nil {
		t.Error(err)
	}
	c.stop()
	r.judge(t, c)
	if err := c.verify(t.Context()); err != nil {
		t.Error(err)
	}
	if log, _ := os.ReadFile(s.Process().Log); strings.Contains(string(log), "forged identity") {
		t.Error("a stage has seen a forged identity: see the log")
	}
	if peak > maxMemory {
		t.Errorf("the host held %d MiB at its peak, and may hold %d", peak>>20, maxMemory>>20)
	}
	t.Logf("\n%s%s\nthe host held %+v before and %+v after, and %d MiB at its peak", r, c, before, after, peak>>20)
}

// newSite starts a site that ends with the test, with core of a minor release of Kubernetes.
func newSite(t *testing.T, core string) *site {
	t.Helper()
	chosen := *seed
	if chosen == 0 {
		chosen = rand.Uint64N(1 << 32)
	}
	t.Logf("seed %d, %s", chosen, *duration)
	s, err := startSite(t.Context(), t.TempDir(), rand.New(rand.NewPCG(chosen, 0)), core)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			keepLog(t, s)
		}
		began := time.Now()
		if err := s.Stop(t.Failed()); err != nil {
			t.Error(err)
		}
		t.Logf("stopped after %s", time.Since(began).Round(time.Millisecond))
	})
	return s
}

// keepLog saves the log of the host from the end of the test.
func keepLog(t *testing.T, s *site) {
	t.Helper()
	log, err := os.ReadFile(s.Process().Log)
	if err == nil {
		path := filepath.Join(os.TempDir(), fmt.Sprintf("catena-chaos-%d.log", os.Getpid()))
		err = os.WriteFile(path, log, 0o600)
		t.Logf("the whole log of the host is in %s", path)
	}
	if err != nil {
		t.Error(err)
	}
}

func happen(t *testing.T, s *site, c *clients, r *report, e event, stage string) {
	t.Helper()
	began := time.Now()
	if testing.Verbose() {
		fmt.Printf("%s %s %s; the chain is %s\n", began.Format("15:04:05.000"), e.kind, stage, strings.Join(s.chain.order, " "))
	}
	if err := e.do(t.Context(), s, stage); err != nil {
		t.Errorf("%s of %s: %v", e.kind, stage, err)
	}
	if err := awaitRecovery(t.Context(), s, c, time.Now()); err != nil {
		t.Errorf("after %s of %s: %v", e.kind, stage, err)
	}
	r.happened(e, stage, began, time.Now(), c)
	r.judge(t, c)
}

// awaitRecovery waits until the server is ready and each kind of client has had a
// success with a request that it began since the event.
func awaitRecovery(ctx context.Context, s *site, c *clients, since time.Time) error {
	return poll(ctx, func() error {
		err := errors.Join(c.succeededSince(since), c.ready(ctx))
		if err == nil {
			err = s.settled(ctx)
		}
		return err
	})
}

// restore returns the chain to its initial state and waits until nothing else is left.
func (s *site) restore(ctx context.Context) error {
	if err := s.apply(ctx, func(c *chain) { c.order, c.standby = slices.Clone(kube), nil }); err != nil {
		return err
	}
	return poll(ctx, func() error { return errors.Join(s.settled(ctx), s.alone(ctx)) })
}
