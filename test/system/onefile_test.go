package system

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/catena-dev/catena/test/internal/cluster"
)

// The host's file is each of the stages that come with it, by the name that it has: as a hard link, a symbolic
// one or a copy.
func TestStagesInTheHostsFile(t *testing.T) {
	t.Parallel()
	bin, err := cluster.Bin()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	own := filepath.Join(dir, "catena")
	path := func(stage string) string { return filepath.Join(dir, "catena-stage-"+stage) }
	for _, to := range []string{own, path("extensions")} {
		// Not by this process, of which another test may fork a child with the file open: it is busy then.
		if out, err := exec.Command("cp", filepath.Join(bin, "catena"), to).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	if err := errors.Join(os.Link(own, path("aggregator")), os.Symlink("catena", path("core"))); err != nil {
		t.Fatal(err)
	}
	config := write(t, "catena.yaml", `apiVersion: catena.dev/v1alpha1
kind: HostConfiguration
stages:
  aggregator: {delegate: core}
  core: {delegate: extensions}
  extensions: {}
`)
	list := exec.Command(own, "plugins", "--config", config, "--set", "pluginDirs="+dir)
	list.Env = cluster.Environ()
	out, err := list.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, stage := range []string{"aggregator", "core", "extensions"} {
		if !strings.Contains(string(out), path(stage)) || strings.Contains(string(out), "refused") {
			t.Errorf("%s is not among the plugins, or is refused:\n%s", stage, out)
		}
		byHand, err := exec.Command(path(stage)).CombinedOutput()
		if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || !strings.Contains(string(byHand), stage) {
			t.Errorf("%s, started by hand: %v\n%s", stage, err, byHand)
		}
	}
}
