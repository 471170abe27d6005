package system

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/catena-dev/catena/test/internal/cluster"
)

// Each configuration in configs starts with the binaries that "make build examples" has made.
func TestExampleConfigurationsStart(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join(cluster.Root(), "configs", "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			s := &site{data: filepath.Join(t.TempDir(), "data"), config: file}
			args := []string{"serve", "--config", s.config, "--data-dir", s.data, "--bind-address", "127.0.0.1", "--secure-port", "0"}
			for i, dir := range pluginDirs(t, file) {
				args = append(args, "--set", "pluginDirs=")
				args[len(args)-1] += made(t, dir)
				if i > 0 {
					t.Fatalf("%s: this test knows one directory of plugins", file)
				}
			}
			s.works(t, args...)
		})
	}
}

// pluginDirs returns the pluginDirs of a file.
func pluginDirs(t *testing.T, file string) []string {
	t.Helper()
	r := runCatena(t, "config", "show", "-o", "json", "--config", file)
	var settings []struct {
		Key   string
		Value any
	}
	if err := json.Unmarshal([]byte(r.stdout), &settings); err != nil {
		t.Fatalf("%v\n%s", err, r.stderr)
	}
	var dirs []string
	for _, s := range settings {
		if s.Key == "pluginDirs" {
			for _, dir := range s.Value.([]any) {
				dirs = append(dirs, dir.(string))
			}
		}
	}
	return dirs
}

// made returns the directory of the tested binaries that stands for a directory that make writes to.
func made(t *testing.T, dir string) string {
	t.Helper()
	bin, err := cluster.Bin()
	if err != nil {
		t.Fatal(err)
	}
	switch dir {
	case "./bin/plugins":
		return filepath.Join(bin, "plugins")
	case "./bin/examples":
		return builtExamples(t, bin)
	}
	t.Fatalf("make writes no plugins to %s", dir)
	return ""
}

// builtExamples returns a directory with examples/hello, as make has built it or as make would.
func builtExamples(t *testing.T, bin string) string {
	t.Helper()
	out, err := exec.Command("make", "-C", cluster.Root(), "-n", "examples").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "-o bin/examples/catena-stage-") {
		t.Fatalf("make examples does not write to bin/examples: %v\n%s", err, out)
	}
	built := filepath.Join(bin, "examples")
	if matches, _ := filepath.Glob(filepath.Join(built, "catena-stage-hello")); len(matches) == 1 {
		return built
	}
	dir := t.TempDir()
	build := exec.Command("go", "build", "-o", filepath.Join(dir, "catena-stage-hello"), "./examples/hello")
	build.Dir = cluster.Root()
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return dir
}
