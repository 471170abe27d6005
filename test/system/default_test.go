package system

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/catena-dev/catena/test/internal/cluster"
)

// The file alone, in an empty directory and with no configuration, is Kubernetes' API server; the lines that it prints for a plugin that is there
// make that a part of it.
func TestNoConfiguration(t *testing.T) {
	t.Parallel()
	bin, err := cluster.Bin()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Symlink(filepath.Join(bin, "catena"), filepath.Join(dir, "catena")); err != nil {
		t.Fatal(err)
	}
	in := func(args ...string) *exec.Cmd {
		cmd := catenaCommand(t, args...)
		cmd.Path, cmd.Dir = filepath.Join(dir, "catena"), dir
		return cmd
	}
	serve := func(args ...string) *host {
		t.Helper()
		args = append([]string{"-c", `cd "$0" && exec ./catena serve "$@"`, dir, "--secure-port", freePort(t)}, args...)
		p, err := cluster.StartProcess(t.TempDir(), "catena", "/bin/sh", args...)
		if err != nil {
			t.Fatal(err)
		}
		h := &host{Process: p}
		t.Cleanup(func() {
			if !h.stopped {
				p.Kill()
			}
		})
		h.awaitReady(t)
		return h
	}
	get := func(args ...string) string {
		t.Helper()
		path, err := cluster.Tool("kubectl")
		if err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(path, append([]string{"--kubeconfig", filepath.Join(dir, "data", "admin.kubeconfig"), "get"}, args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return string(out)
	}

	h := serve()
	if want := "no configuration is given: the chain is aggregator → core → extensions, and all state is in ./data\n"; !strings.HasPrefix(h.log(), want) {
		t.Errorf("%q is not what is said first:\n%s", want, h.log())
	}
	if out := get("namespaces"); !strings.Contains(out, "kube-system") {
		t.Error(out)
	}
	for _, args := range [][]string{{"status"}, {"config", "validate"}, {"chain"}, {"reload"}, {"swap", "extensions"}} {
		if r := runCommand(t, in(args...)); r.code != 0 {
			t.Errorf("%q: exit code %d\n%s%s", args, r.code, r.stdout, r.stderr)
		}
	}
	h.stop(t)

	if err := os.Mkdir(filepath.Join(dir, "plugins"), 0o755); err != nil {
		t.Fatal(err)
	}
	const plugin = "catena-stage-hello"
	if err := os.WriteFile(filepath.Join(dir, "plugins", plugin), read(filepath.Join(bin, "examples", plugin)), 0o755); err != nil {
		t.Fatal(err)
	}
	h = serve()
	_, lines, _ := strings.Cut(h.log(), "plugins/"+plugin+" is no part of it; with a file of these lines, given with --config, it is the first stage:\n\n")
	lines, _, _ = strings.Cut(lines, "\n\n")
	h.stop(t)
	if err := os.WriteFile(filepath.Join(dir, "mine.yaml"), []byte(strings.ReplaceAll(lines, "  ", "")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := runCommand(t, in("lock", "--config", "mine.yaml")); r.code != 0 {
		t.Fatalf("lock: %s%s", r.stdout, r.stderr)
	}
	h = serve("--config", "mine.yaml")
	if out := get("--raw", "/hello"); !strings.Contains(out, "hello") {
		t.Error(out)
	}
	if out := get("namespaces"); !strings.Contains(out, "kube-system") {
		t.Error(out)
	}
	h.stop(t)
}
