package system

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/catena-dev/catena/test/internal/cluster"
	"github.com/catena-dev/catena/test/internal/documents"
)

// What docs/upgrades.md shows is typed as it stands, on the server of README's first lines: core and the controllers go
// to another release and back.
func TestUpgradesDocument(t *testing.T) {
	t.Parallel()
	core, err := cluster.Stage("core", "1.36")
	if err != nil {
		t.Fatal(err)
	}
	s := documents.NewSession(t, func(command string) bool { return command == "catena serve" })
	if err := os.Mkdir(filepath.Join(s.Dir, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Dir(core), filepath.Join(s.Dir, "bin", "kube-1.36")); err != nil {
		t.Fatal(err)
	}
	s.Type(t, filepath.Join(cluster.Root(), "docs", "upgrades.md"), "", "What happens in the move")
	// Controllers that were taken to another release by themselves stay there, as long as core serves the same one.
	s.Prepare(t, strings.ReplaceAll(`
~~~console
$ catena swap controllers --binary bin/kube-1.36/catena-stage-controllers
stage controllers swapped: 377b1d28 → 4c84f810 (version v1.36.3, ready after 114ms); on probation for 10s
$ catena swap core
stage core swapped: 1889793a → 9072f087 (version v1.37.0, ready after 1.924s); on probation for 10s
~~~
`, "~~~", "```"))
	for line := range strings.Lines(s.Output("server")) {
		refused := strings.Contains(line, "stage not swapped")
		if strings.Contains(line, "[ERROR]") || strings.Contains(line, "[WARN]") && !refused {
			t.Error(line)
		}
	}
}
