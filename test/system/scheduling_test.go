package system

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/catena-dev/catena/test/internal/cluster"
)

// TestSchedulingPolicy looks at all threads of a chain: those of the host, of its stages and of the process that a swap starts have the policy batch,
// or with cpuSchedulingPolicy that of other programs.
func TestSchedulingPolicy(t *testing.T) {
	t.Parallel()
	for policy, want := range map[string]uint32{"": unix.SCHED_BATCH, "other": unix.SCHED_NORMAL} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			options := cluster.Options{ConfigFile: helloConfig(t), PluginDirs: []string{plugins(t, "hello")}}
			if policy != "" {
				options.Set = []string{"cpuSchedulingPolicy=" + policy}
			}
			c := catena(t, options)
			before := c.Stages()["hello"]
			expectPolicy(t, c, want)
			if err := c.Swap(t.Context(), "hello"); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the process is another one", func() bool { return c.Stages()["hello"] != before })
			expectPolicy(t, c, want)
		})
	}
}

// expectPolicy looks at the threads of a host and its stages.
func expectPolicy(t *testing.T, c *cluster.Catena, want uint32) {
	t.Helper()
	pids := maps.Clone(c.Stages())
	pids["the host"] = c.Process().PID()
	for name, pid := range pids {
		threads, err := os.ReadDir(filepath.Join("/proc", strconv.Itoa(pid), "task"))
		if err != nil || len(threads) == 0 {
			t.Fatalf("%s: %d threads, %v", name, len(threads), err)
		}
		found := map[string]int{}
		for _, thread := range threads {
			id, err := strconv.Atoi(thread.Name())
			if err != nil {
				t.Fatal(err)
			}
			if attr, err := unix.SchedGetAttr(id, 0); err == nil && attr.Policy != want {
				found[fmt.Sprint("policy ", attr.Policy)]++
			}
		}
		if len(found) > 0 {
			t.Errorf("%s: of %d threads some have not policy %d: %v", name, len(threads), want, found)
		}
	}
}
