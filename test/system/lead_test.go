package system

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/catena-dev/catena/sdk"
	"github.com/catena-dev/catena/test/internal/cluster"
)

// newWorker makes a stage that works in the background: it writes into a file that all of its processes have.
func newWorker(env *sdk.Env) (http.Handler, error) {
	file, err := os.OpenFile(filepath.Join(env.DataDir(), "work"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	env.PostStartHook("work", func(ctx context.Context) error {
		go func() {
			err := env.Lead(ctx, "work", func(ctx context.Context) error {
				for ctx.Err() == nil {
					if _, err := fmt.Fprintf(file, "%s %d\n", env.Generation(), time.Now().UnixMilli()); err != nil {
						return err
					}
					time.Sleep(time.Millisecond)
				}
				return nil
			})
			if err != nil {
				env.Log.Error("the work has ended", "error", err)
			}
		}()
		return nil
	})
	return env.Next, nil
}

// turns returns the processes of the worker in the order in which they have worked, as its file says, with the time
// between one and the next.
func turns(t *testing.T, file string) (generations []string, gaps []time.Duration) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	last := int64(0)
	for line := range strings.Lines(string(text)) {
		generation, millis, _ := strings.Cut(strings.TrimSpace(line), " ")
		at, err := strconv.ParseInt(millis, 10, 64)
		if err != nil {
			continue // it is being written
		}
		if len(generations) == 0 || generations[len(generations)-1] != generation {
			generations, gaps = append(generations, generation), append(gaps, time.Duration(at-last)*time.Millisecond)
		}
		last = at
	}
	return generations, gaps
}

// What a stage does in the background is done by one process at a time: while a swap has two of them, in a canary, with
// a standby, and after a crash.
func TestLead(t *testing.T) {
	t.Parallel()
	c := catena(t, cluster.Options{
		PluginDirs: []string{plugins(t, "worker")},
		Set: []string{
			"stages.worker.delegate=aggregator", "stages.worker.lock=off", "stages.worker.standby=true",
		},
	})
	file := filepath.Join(c.DataDir(), "stages", "worker", "work")
	command := func(args ...string) {
		t.Helper()
		if out, err := c.Command(t.Context(), args...); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	// serving returns the process that serves, once it works.
	serving := func() (generation string, pid int) {
		t.Helper()
		eventually(t, "the process that serves works", func() bool {
			status, err := c.Status(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range status.Stages {
				if s.Stage == "worker" {
					generation, pid = s.Generation, s.PID
				}
			}
			worked, _ := turns(t, file)
			return pid != 0 && len(worked) > 0 && worked[len(worked)-1] == generation
		})
		return generation, pid
	}
	_, pid := serving()
	swapped := map[string]bool{}
	for i := range 4 {
		command("swap", "worker", "--probation", "500ms")
		generation, next := serving()
		swapped[generation], pid = true, next
		if i%2 == 1 {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			eventually(t, "another process works", func() bool {
				_, next = serving()
				return next != pid
			})
		}
	}
	before, _ := serving()
	command("swap", "worker", "--canary", "50%", "--for", "1h")
	if worked, _ := turns(t, file); worked[len(worked)-1] != before {
		t.Error("a canary works beside the process that serves")
	}
	command("swap", "worker", "--rollback")
	command("swap", "worker", "--canary", "50%", "--for", "1h")
	command("swap", "worker", "--promote")
	serving()
	worked, gaps := turns(t, file)
	seen := map[string]bool{}
	for i, generation := range worked {
		if seen[generation] {
			t.Fatalf("%s works again after another: %v", generation, worked[:min(len(worked), 20)])
		}
		if seen[generation] = true; swapped[generation] && gaps[i] > 2*time.Second {
			t.Errorf("nobody worked for %s when %s took over", gaps[i], generation)
		}
	}
	if len(worked) < 8 {
		t.Errorf("%v have worked, want eight processes or more", worked)
	}
}
