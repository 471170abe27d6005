package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/catena-dev/catena/test/internal/cluster"
	"github.com/catena-dev/catena/test/internal/documents"
)

// The first steps of the README are typed as they stand, in an empty directory but for what a clone has.
func TestReadme(t *testing.T) {
	t.Parallel()
	bin, err := cluster.Bin()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Symlink(filepath.Join(cluster.Root(), "examples"), filepath.Join(dir, "examples")); err != nil {
		t.Fatal(err)
	}
	s := documents.Session{
		Dir: dir,
		Env: append(cluster.Environ(), "PATH="+bin+":"+filepath.Join(bin, "tools")+":"+os.Getenv("PATH"),
			"KUBECACHEDIR="+t.TempDir(), "CATENA_APISERVER_SECURE_PORT=0"),
		Stays: func(command string) bool { return command == "catena serve" },
	}
	s.Type(t, filepath.Join(cluster.Root(), "README.md"), "Try it", "How it works")
}
