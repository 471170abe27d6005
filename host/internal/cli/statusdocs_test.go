package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The tables in the documents have the columns that are printed. One that is cut off ends with "…".
func TestStatusInDocuments(t *testing.T) {
	root := filepath.Join("..", "..", "..")
	files, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	columns, found := strings.Fields(fmt.Sprintf(statusHeader, "STATE")), 0
	for _, file := range append(files, filepath.Join(root, "README.md")) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			fields := strings.Fields(line)
			if len(fields) < 2 || fields[0] != "STAGE" || fields[1] != "STATE" {
				continue
			}
			found++
			want := columns
			if n := len(fields) - 1; fields[n] == "…" {
				fields, want = fields[:n], columns[:min(n, len(columns))]
			}
			if !slices.Equal(fields, want) {
				t.Errorf("%s has the columns %q, and %q are printed", filepath.Base(file), fields, want)
			}
		}
	}
	if found == 0 {
		t.Error("no document has a table of catena status")
	}
}
