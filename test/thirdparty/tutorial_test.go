package thirdparty

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/catena-dev/catena/test/internal/cluster"
	"github.com/catena-dev/catena/test/internal/documents"
)

// The tutorial is typed as it stands, after its first section, which makes the directory catena and takes minutes.
func TestTutorial(t *testing.T) {
	bin, err := cluster.Bin()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Symlink(cluster.Root(), filepath.Join(dir, "catena")); err != nil {
		t.Fatal(err)
	}
	s := documents.Session{
		Dir: dir,
		Env: append(cluster.Environ(), "PATH="+bin+":"+filepath.Join(bin, "tools")+":"+os.Getenv("PATH"),
			"KUBECACHEDIR="+t.TempDir(), "CATENA_APISERVER_SECURE_PORT=0"),
		Stays: func(command string) bool {
			return command == "make run" || strings.HasPrefix(command, "catena serve ") || slices.Contains(strings.Fields(command), "dev")
		},
	}
	s.Type(t, filepath.Join(cluster.Root(), "docs", "tutorial.md"), "A new stage", "Next")
}
