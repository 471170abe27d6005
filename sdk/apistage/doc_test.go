package apistage_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The example of docs/apistage.md compiles, and its stage has at most sixty lines.
func TestExampleOfTheDocs(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/apistage.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(text), 2)
	if len(blocks) != 2 {
		t.Fatalf("%d blocks of Go, want two", len(blocks))
	}
	if lines := strings.Count(blocks[1][1], "\n"); lines > 60 {
		t.Errorf("the stage has %d lines", lines)
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	dir, replace := t.TempDir(), map[string]string{}
	for i, path := range []string{"examples/recipes/v1/types.go", "examples/recipes/main.go"} {
		file := filepath.Join(dir, strings.ReplaceAll(path, "/", "_"))
		if err := os.WriteFile(file, []byte(blocks[i][1]), 0o600); err != nil {
			t.Fatal(err)
		}
		replace[filepath.Join(root, path)] = file
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(file, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "build", "-overlay", file, "-o", os.DevNull, "./examples/recipes")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
