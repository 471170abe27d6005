// Package chaos shows that a stage can be killed, suspended and swapped while
// clients go on. Real clients write, read and watch without a pause, while one
// event after the other, at random from a printed seed, hits a stage. In the end
// every acknowledged write must be there, every informer must have seen the final
// state of each object, no object that exists may ever have been "not found", and
// no request may have failed because of a swap.
//
//	go test ./test/chaos -v -chaos.for=30m -chaos.seed=7
package chaos

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/catena-dev/catena/test/internal/cluster"
)

var (
	duration = flag.Duration("chaos.for", 0, "how long events go on; the test is skipped without it")
	seed     = flag.Uint64("chaos.seed", 0, "seed of the events; 0 takes one at random")
)

var stages = []string{"aggregator", "core", "extensions"}

const (
	// liveness is the stages' livenessTimeout, short so that suspending one is soon over.
	liveness = 2 * time.Second
	// recovery bounds the time from an event to a server that is ready again.
	recovery = 60 * time.Second
)

// event is something that happens to a stage.
type event struct {
	kind    string
	planned bool // no request may fail because of it
	do      func(ctx context.Context, c *cluster.Catena, stage string) error
}

var events = []event{
	{"swap", true, swap},
	{"SIGKILL", false, func(_ context.Context, c *cluster.Catena, stage string) error {
		return syscall.Kill(c.Stages()[stage], syscall.SIGKILL)
	}},
	{"SIGSTOP", false, func(_ context.Context, c *cluster.Catena, stage string) error {
		return syscall.Kill(c.Stages()[stage], syscall.SIGSTOP)
	}},
}

func swap(ctx context.Context, c *cluster.Catena, stage string) error {
	bin, err := cluster.Bin()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(bin, "catena"), "swap", stage, "--data-dir", c.DataDir(),
		"--config", filepath.Join(cluster.Root(), "configs", "catena.yaml"))
	cmd.Dir, cmd.Env = cluster.Root(), cluster.Environ()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

func TestChaos(t *testing.T) {
	if *duration == 0 {
		t.Skip("run it with make chaos, or with -chaos.for")
	}
	if *seed == 0 {
		*seed = rand.Uint64N(1 << 32)
	}
	t.Logf("seed %d, %s", *seed, *duration)
	var set []string
	for _, stage := range stages {
		set = append(set, fmt.Sprintf("stages.%s.livenessTimeout=%s", stage, liveness), "stages."+stage+".drainSpread=1s")
	}
	c, err := cluster.StartCatena(t.Context(), cluster.Options{Set: set})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		began := time.Now()
		if err := c.Stop(t.Failed()); err != nil {
			t.Error(err)
		}
		t.Logf("stopped after %s", time.Since(began).Round(time.Millisecond))
	})
	clients, err := startClients(t.Context(), c.Config(cluster.Admin))
	if err != nil {
		t.Fatal(err)
	}
	defer clients.stop()
	before := descriptors(t, c.Process().PID())

	r := &report{}
	random := rand.New(rand.NewPCG(*seed, 0))
	for end := time.Now().Add(*duration); time.Now().Before(end); {
		e, stage := events[random.IntN(len(events))], stages[random.IntN(len(stages))]
		began := time.Now()
		if err := e.do(t.Context(), c, stage); err != nil {
			t.Fatalf("%s %s: %v", e.kind, stage, err)
		}
		if err := awaitRecovery(t.Context(), c, clients, began); err != nil {
			t.Fatalf("after %s of %s: %v", e.kind, stage, err)
		}
		r.happened(e, stage, began, time.Now(), clients)
		time.Sleep(time.Duration(random.IntN(1000)) * time.Millisecond)
	}
	clients.stop()
	r.judge(t, clients)
	if err := clients.verify(t.Context()); err != nil {
		t.Error(err)
	}
	if after := descriptors(t, c.Process().PID()); after > before+50 {
		t.Errorf("the host has %d descriptors, %d before", after, before)
	}
	t.Logf("\n%s", r)
}

// awaitRecovery waits until the server is ready and each kind of client has had a
// success with a request that it began after the event.
func awaitRecovery(ctx context.Context, c *cluster.Catena, clients *clients, since time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, recovery)
	defer cancel()
	for {
		err := errors.Join(clients.succeededSince(since), clients.ready(ctx))
		if err == nil && len(c.Stages()) == len(stages) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("no recovery within %s: %w", recovery, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func descriptors(t *testing.T, pid int) int {
	t.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Skipf("descriptors of the host: %v", err)
	}
	return len(entries)
}

// report sums up what the events did.
type report struct {
	windows []window
}

type window struct {
	event
	stage    string
	from, to time.Time
	stall    time.Duration
}

func (r *report) happened(e event, stage string, from, to time.Time, c *clients) {
	r.windows = append(r.windows, window{e, stage, from, to, c.longest(from, to)})
}

// judge says which failures of requests were not to happen.
func (r *report) judge(t *testing.T, c *clients) {
	t.Helper()
	for _, f := range c.failures() {
		// The event that a request ran into: the latest that began before its end.
		i := -1
		for j, w := range r.windows {
			if w.from.Before(f.to) {
				i = j
			}
		}
		switch {
		case f.wrong:
			t.Errorf("wrong answer to %s: %v", f.what, f.err)
		case i < 0 || r.windows[i].planned:
			name := "no event"
			if i >= 0 {
				name = r.windows[i].kind + " of " + r.windows[i].stage
			}
			t.Errorf("%s failed because of %s: %v", f.what, name, f.err)
		}
	}
}

func (r *report) String() string {
	type key struct{ kind, stage string }
	var keys []key
	count, stall := map[key]int{}, map[key]time.Duration{}
	for _, w := range r.windows {
		k := key{w.kind, w.stage}
		if !slices.Contains(keys, k) {
			keys = append(keys, k)
		}
		count[k]++
		stall[k] = max(stall[k], w.stall)
	}
	slices.SortFunc(keys, func(a, b key) int {
		return slices.Compare([]string{a.kind, a.stage}, []string{b.kind, b.stage})
	})
	out := fmt.Sprintf("%-10s %-12s %6s %16s\n", "event", "stage", "count", "longest stall")
	for _, k := range keys {
		out += fmt.Sprintf("%-10s %-12s %6d %16s\n", k.kind, k.stage, count[k], stall[k].Round(time.Millisecond))
	}
	return out
}
