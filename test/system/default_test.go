package system

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/catena-dev/catena/test/internal/cluster"
)

// The file alone, in an empty directory and with no configuration, is Kubernetes' API server with its controllers; the lines that it prints for a plugin that is there
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
	get := func(args ...string) string { return kubectlOf(t, dir, append([]string{"get"}, args...)...) }

	h := serve()
	if want := "no configuration is given: the chain is aggregator → core → extensions → controllers, and all state is in ./data\n"; !strings.HasPrefix(h.log(), want) {
		t.Errorf("%q is not what is said first:\n%s", want, h.log())
	}
	if out := get("namespaces"); !strings.Contains(out, "kube-system") {
		t.Error(out)
	}
	doWhatOneTriesFirst(t, dir)
	for _, args := range [][]string{{"status"}, {"config", "validate"}, {"chain"}, {"reload"}, {"swap", "extensions"}, {"swap", "controllers"}} {
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
	h = serve("--config", "mine.yaml", "--set", "stages.controllers.disabled=true")
	if r := runCommand(t, in("chain", "--data-dir", "data")); strings.Contains(r.stdout, "controllers") || !strings.Contains(r.stdout, "extensions") {
		t.Errorf("without the controllers, the chain is\n%s%s", r.stdout, r.stderr)
	}
	if out := get("--raw", "/hello"); !strings.Contains(out, "hello") {
		t.Error(out)
	}
	if out := get("namespaces"); !strings.Contains(out, "kube-system") {
		t.Error(out)
	}
	h.stop(t)
}

// kubectlOf runs kubectl with the kubeconfig of a host that runs in dir.
func kubectlOf(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd, err := cluster.Kubectl(t.Context(), t.TempDir(), filepath.Join(dir, "data", "admin.kubeconfig"), args...)
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("kubectl %q: %v: %s", args, err, out)
	}
	return string(out)
}

// doWhatOneTriesFirst does so. There are no nodes: what runs there is pending.
func doWhatOneTriesFirst(t *testing.T, dir string) {
	t.Helper()
	demo := func(args ...string) string { return kubectlOf(t, dir, append(args, "--namespace=demo")...) }
	kubectlOf(t, dir, "create", "namespace", "demo")
	eventually(t, "the namespace has its service account", func() bool {
		return strings.Contains(demo("get", "serviceaccounts"), "default")
	})
	demo("run", "nginx", "--image=nginx")
	demo("create", "deployment", "web", "--image=nginx", "--replicas=2")
	eventually(t, "the Deployment has its ReplicaSet and Pods", func() bool {
		return strings.Count(demo("get", "pods"), "Pending") == 3
	})
	kubectlOf(t, dir, "delete", "namespace", "demo", "--timeout=2m")
}

// A machine may have no network but its own loopback: the server starts without a complaint, and has no endpoint for others.
func TestWithoutANetwork(t *testing.T) {
	t.Parallel()
	const alone = `ip link set lo up && cd "$0" && exec "$@"`
	if out, err := exec.Command("unshare", "--net", "sh", "-c", alone, "/", "true").CombinedOutput(); err != nil {
		t.Skipf("a network of one's own takes root and iproute2: %v %s", err, out)
	}
	bin, err := cluster.Bin()
	if err != nil {
		t.Fatal(err)
	}
	for _, address := range []string{"0.0.0.0", "127.0.0.1"} {
		dir := t.TempDir()
		p, err := cluster.StartProcess(t.TempDir(), "catena", "unshare", "--net", "sh", "-c", alone, dir, filepath.Join(bin, "catena"), "serve",
			"--secure-port", "0", "--bind-address", address, "--set", "log.format=json")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Kill)
		h := &host{Process: p}
		h.awaitReady(t)
		for _, line := range complaints(t, p.Log) {
			t.Errorf("%s: %s", address, line)
		}
		h.stop(t)
	}
}
