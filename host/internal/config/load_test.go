package config

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
)

var update = flag.Bool("update", false, "write the golden files and the generated documentation")

// TestLoadGolden runs testdata/load/*.txt. The head of each is a comment and the
// layers, one in a line: "config FILE", "env NAME=VALUE" or "set KEY=VALUE"; "show
// defaults" prints default values too. The files follow; the last one, "want", is the
// result or every error.
func TestLoadGolden(t *testing.T) {
	t.Parallel()
	cases, err := filepath.Glob("testdata/load/*.txt")
	if err != nil || len(cases) == 0 {
		t.Fatalf("no cases (%v)", err)
	}
	for _, file := range cases {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			runGolden(t, file)
		})
	}
}

func runGolden(t *testing.T, file string) {
	archive, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	want := ""
	files := archive.Files[:0]
	for _, f := range archive.Files {
		if f.Name == "want" {
			want = string(f.Data)
			continue
		}
		files = append(files, f)
		path := filepath.Join(dir, f.Name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, f.Data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	options, show := parseHead(string(archive.Comment), dir)
	got := strings.ReplaceAll(result(options, show), dir+string(filepath.Separator), "")
	if *update {
		archive.Files = append(files, txtar.File{Name: "want", Data: []byte(got)})
		if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", file, diff)
	}
}

func parseHead(head, dir string) (o Options, showDefaults bool) {
	for line := range strings.Lines(head) {
		verb, arg, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		switch verb {
		case "config":
			o.Files = append(o.Files, filepath.Join(dir, arg))
		case "env":
			o.Env = append(o.Env, arg)
		case "set":
			o.Set = append(o.Set, arg)
		case "show":
			showDefaults = true
		}
	}
	return o, showDefaults
}

func result(o Options, showDefaults bool) string {
	c, err := Load(o)
	if err != nil {
		return err.Error() + "\n"
	}
	var out strings.Builder
	fmt.Fprintf(&out, "order: %s\n", strings.Join(c.Order, " "))
	for _, s := range c.Effective() {
		if s.Source != defaultSource || showDefaults {
			fmt.Fprintf(&out, "%s: %s (%s)\n", s.Key, s.Text(), s.Where())
		}
	}
	return out.String()
}
