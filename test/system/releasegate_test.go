package system

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/catena-dev/catena/test/internal/cluster"
)

// However core would come to another release, it stays where it is if something is in the way: with the same reasons, and with the processes
// of before.
func TestReleaseGate(t *testing.T) {
	t.Parallel()
	const far = "v1.35.4" // two minors away
	dir := t.TempDir()
	binaryOf := func(name string) string {
		path := filepath.Join(dir, name, far, "catena-stage-core")
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	other, own := binaryOf("other"), binaryOf("own")
	if err := linkPlugins(filepath.Dir(other), "core"); err != nil {
		t.Fatal(err)
	}
	bin, err := cluster.Bin()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(bin, "plugins", "catena-stage-core"), own); err != nil {
		t.Fatal(err)
	}
	shipped := read(filepath.Join(cluster.Root(), "configs", "kube-apiserver.yaml"))
	config := write(t, "catena.yaml", string(shipped))
	more := filepath.Join(filepath.Dir(config), "conf.d", "core.yaml")
	if err := os.Mkdir(filepath.Dir(more), 0o755); err != nil {
		t.Fatal(err)
	}
	use := func(binary string, watch string) {
		t.Helper()
		if err := os.WriteFile(more, []byte("watchPlugins: "+watch+"\nstages:\n  core:\n    binary: "+binary+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	use(own, "true")
	etcd := startExternalEtcd(t)
	c := catena(t, cluster.Options{ConfigFile: config, Set: []string{"store.endpoints=" + etcd.url}})
	command := func(args ...string) run { return runCatena(t, append(args, "--data-dir", c.DataDir())...) }
	before := c.StageProcesses()
	log := func() string { text, _ := os.ReadFile(c.Process().Log); return string(text) }
	reasons := []string{"from v1.37.0 to " + far, "is not a neighbour of v1.37.", "host: is of v1.37.", "stage extensions: is of v1.37.", "--allow NAME"}
	refused := func(what, text string) {
		t.Helper()
		for _, want := range reasons {
			if !strings.Contains(text, want) {
				t.Errorf("%s: %q is not in\n%s", what, want, text)
			}
		}
		eventually(t, what+": the processes of before and no other", func() bool { return maps.Equal(c.StageProcesses(), before) })
		kubectl(t, c.Server, "get", "namespaces")
		if v := kubectl(t, c.Server, "version"); !strings.Contains(v, "Server Version: v1.37.") {
			t.Errorf("%s: %s", what, v)
		}
	}

	replaced := own + ".new"
	if err := os.Link(other, replaced); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(replaced, own); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the new file is noticed", func() bool { return strings.Contains(log(), "is not a neighbour") })
	refused("a file that is replaced, with watchPlugins", log())

	swap := command("swap", "core")
	if swap.code != 1 {
		t.Errorf("swap: exit code %d", swap.code)
	}
	refused("a swap to the file that has been replaced", swap.stderr)

	use(other, "false")
	reload := command("reload")
	if reload.code != 1 {
		t.Errorf("reload: exit code %d", reload.code)
	}
	refused("a reload", reload.stderr)

	swap = command("swap", "core", "--binary", other)
	if swap.code != 1 {
		t.Errorf("swap --binary: exit code %d", swap.code)
	}
	refused("a swap to another binary", swap.stderr)

	// All stages are swapped, each to its file: core is told that what it knows is of before.
	core := c.Stages()["core"]
	etcd.restore(t, clientset(t, c.Server, cluster.Admin))
	const stale = "stage not swapped: what it knows of etcd is of before the restore, until catena swap succeeds: stage=core"
	eventually(t, "the log says: "+stale, func() bool { return strings.Contains(log(), stale) })
	eventually(t, "the other stages are swapped", func() bool {
		before = c.StageProcesses()
		return before[core] == "core" && len(before) == 3 && strings.Count(log(), "stage swapped: ") >= 2
	})
	_, text, _ := strings.Cut(log(), stale)
	refused("the swaps after a restore", text)

	// Its file is gone, and an outage would be worse: it comes back from the other, and everybody can see that.
	if err := syscall.Kill(c.Stages()["core"], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	const remark = "core was restarted from another release (v1.37.0 → " + far + "): its file was replaced"
	eventually(t, remark, func() bool { return strings.Contains(command("status").stdout, remark) })
	if want := "[WARN]  catena: stage is restarted from another release of Kubernetes: its file was replaced: stage=core from=v1.37.0 to=" + far; !strings.Contains(log(), want) {
		t.Errorf("%q is not in the log", want)
	}
	if events := command("status", "-o", "json").stdout; !strings.Contains(events, `"release-changed"`) {
		t.Errorf("no event in %s", events)
	}
}
