package stagetest

import (
	"os/exec"
	"path/filepath"
	"testing"
)

// Build builds the stage in a directory, such as ".", with flags of go build if there are
// any, and returns the command for StartProcess.
func Build(t testing.TB, dir string, flags ...string) *exec.Cmd {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "stage")
	build := exec.Command("go", append(append([]string{"build", "-o", binary}, flags...), ".")...)
	build.Dir = dir
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build in %s: %v\n%s", dir, err, out)
	}
	return exec.Command(binary)
}
