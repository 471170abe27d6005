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
	s := documents.NewSession(t, func(command string) bool {
		return command == "make run" || strings.HasPrefix(command, "catena serve ") || slices.Contains(strings.Fields(command), "dev")
	})
	if err := os.Symlink(cluster.Root(), filepath.Join(s.Dir, "catena")); err != nil {
		t.Fatal(err)
	}
	s.Type(t, filepath.Join(cluster.Root(), "docs", "tutorial.md"), "A new stage", "Next")
}
