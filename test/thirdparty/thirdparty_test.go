// Package thirdparty tests the work of stage authors who have only the SDK as a module and
// the catena command: outside of this repository, in an empty directory.
package thirdparty

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/catena-dev/catena/test/internal/cluster"
)

// A stage from "catena stage new" builds, passes its test and keeps the protocol.
func TestStageNew(t *testing.T) {
	p := publish(t)
	for _, tc := range []struct {
		name  string
		args  []string
		check []string
	}{
		{name: "greeter", args: []string{"--module", "github.com/me/greeter"}},
		// A kind Source, beside the source of the kind. Without a worker: the tutorial.
		{name: "sources", args: []string{"--kind", "api", "--worker"}, check: []string{"--store", "--skip", "idle"}}, // half a minute, in the other one
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := workshop{dir: t.TempDir(), env: p.env}
			begun := time.Now()
			w.run(t, w.catena(t), append([]string{"stage", "new", tc.name, "--sdk", p.version}, tc.args...)...)
			t.Logf("stage new took %s", time.Since(begun).Round(100*time.Millisecond))
			w.dir = filepath.Join(w.dir, tc.name)
			w.run(t, "go", "test", "./...")
			t.Logf("%s from stage new to a passing test, of an SDK that was not compiled before", time.Since(begun).Round(100*time.Millisecond))
			w.run(t, "make", "build")
			binary := filepath.Join(w.dir, "bin", "catena-stage-"+tc.name)
			out := w.run(t, w.catena(t), append([]string{"stage", "check", binary, "--requests", "2000", "--timeout", "2m"}, tc.check...)...)
			if !strings.Contains(out, " 0 failed") {
				t.Errorf("%s", out)
			}
			// The module is there, not the work tree.
			if mod, err := os.ReadFile(filepath.Join(w.dir, "go.mod")); err != nil || strings.Contains(string(mod), "replace") {
				t.Errorf("%v\n%s", err, mod)
			}
		})
	}
}

// workshop is the directory of a stage author.
type workshop struct {
	dir string
	env []string
}

func (w workshop) catena(t *testing.T) string {
	t.Helper()
	bin, err := cluster.Bin()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(bin, "catena")
}

// patience is how long a command may take; some compile a lot.
const patience = 8 * time.Minute

// run runs a command in the directory, which must succeed.
func (w workshop) run(t *testing.T, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.WaitDelay = w.dir, time.Second
	cmd.Env = append(cluster.Environ(), w.env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", filepath.Base(name), strings.Join(args, " "), err, out)
	}
	return string(out)
}
