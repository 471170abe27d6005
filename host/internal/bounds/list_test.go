package bounds

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the list into docs/security.md")

const (
	begin = "<!-- bounds: written by go test ./host/internal/bounds -update -->\n"
	end   = "<!-- end -->"
)

// docs/security.md has the list.
func TestDocumentation(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString("| what | at most |\n|---|---|\n")
	for _, g := range List() {
		fmt.Fprintf(&b, "| **%s** | *%s* |\n", g.Title, g.Beyond)
		for _, bound := range g.Bounds {
			fmt.Fprintf(&b, "| %s | %s |\n", bound.What, bound.At)
		}
	}
	path := filepath.Join("..", "..", "..", "docs", "security.md")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), begin)
	have, after, closed := strings.Cut(rest, end)
	switch {
	case !ok || !closed:
		t.Fatalf("%s has no %q, or no %q after it", path, begin, end)
	case have == b.String():
	case *update:
		if err := os.WriteFile(path, []byte(before+begin+b.String()+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s has\n%s and should have\n%s run go test ./host/internal/bounds -update", path, have, b.String())
	}
}
