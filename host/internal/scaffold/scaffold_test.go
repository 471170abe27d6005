package scaffold

import (
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// What is written is formatted, mentions no template, and is what the list says.
func TestWrite(t *testing.T) {
	t.Parallel()
	for _, o := range []Options{{Kind: Middleware}, {Kind: API}, {Kind: API, Worker: true}} {
		dir := filepath.Join(t.TempDir(), "new")
		o.Name, o.Module, o.Dir, o.SDK = "note-book", "github.com/me/note-book", dir, "v0.3.0"
		got, files, _, err := write(o)
		if err != nil || got != dir {
			t.Fatalf("%s, %v", got, err)
		}
		for _, want := range []string{".github/workflows/ci.yaml", ".gitignore", "Makefile", "README.md", "catena.yaml", "go.mod", "main.go", "main_test.go"} {
			if !slices.Contains(files, want) {
				t.Errorf("%s: no %s", o.Kind, want)
			}
		}
		if slices.Contains(files, "worker.go") != o.Worker {
			t.Errorf("%v of a worker: %t", files, o.Worker)
		}
		for _, file := range files {
			checkFile(t, filepath.Join(dir, file))
		}
		mod, _ := os.ReadFile(filepath.Join(dir, "go.mod"))
		if !strings.Contains(string(mod), "module github.com/me/note-book\n") || !strings.Contains(string(mod), "require "+sdkModule+" v0.3.0\n") {
			t.Errorf("%s", mod)
		}
		if _, _, _, err := write(Options{Name: "note-book", Kind: o.Kind, Dir: dir}); err == nil || !strings.Contains(err.Error(), "is not empty") {
			t.Errorf("a second time: %v", err)
		}
	}
}

func checkFile(t *testing.T, file string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if len(text) == 0 || strings.Contains(string(text), "{{.") || strings.Contains(string(text), "<no value>") {
		t.Errorf("%s:\n%s", file, text)
	}
	if filepath.Ext(file) != ".go" {
		return
	}
	formatted, err := format.Source(text)
	if err != nil || string(formatted) != string(text) {
		t.Errorf("%s is not formatted: %v\n%s", file, err, text)
	}
}

// Whatever the group is called, its kind takes no name that the package has already.
func TestKindNames(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"sources", "specs", "lists", "source-list", "type-metas", "object-metas", "v1", "runtime", "main", "groups"} {
		dir := filepath.Join(t.TempDir(), "new")
		if _, _, _, err := write(Options{Name: name, Kind: API, Dir: dir}); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, file := range []string{"v1/types.go", "main.go"} {
			checkDeclarations(t, filepath.Join(dir, file))
		}
	}
}

// The rights that a group's stage is given are those of the page about groups, with which
// the group of examples/wardle works.
func TestRights(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "new")
	if _, _, _, err := write(Options{Name: "notes", Kind: API, Dir: dir}); err != nil {
		t.Fatal(err)
	}
	want := firstRules(t, filepath.Join(dir, "rbac.yaml"))
	for _, file := range []string{"../../../docs/apistage.md", "../../../examples/wardle/rbac.yaml"} {
		if got := firstRules(t, file); got != want {
			t.Errorf("%s:\n%s\nscaffold:\n%s", file, got, want)
		}
	}
}

// firstRules returns the rules of the first role in a file.
func firstRules(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	_, rules, ok := strings.Cut(string(text), "\nrules:\n")
	rules, _, ok2 := strings.Cut(rules, "\n---\n")
	if !ok || !ok2 {
		t.Fatalf("%s: no role", file)
	}
	return rules
}

func checkDeclarations(t *testing.T, path string) {
	t.Helper()
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	// What the imports hold stays unknown: other errors mean nothing.
	config := types.Config{Error: func(err error) {
		if strings.Contains(err.Error(), "redeclared") {
			t.Error(err)
		}
	}}
	_, _ = config.Check("p", set, []*ast.File{file}, nil)
}

func TestBadOptions(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		opts Options
		want string
	}{
		{Options{Name: "", Kind: Middleware}, "1 to 28 lower case letters"},
		{Options{Name: "host", Kind: Middleware}, "that of the host itself"},
		{Options{Name: "Greeter", Kind: Middleware}, `name "Greeter"`},
		{Options{Name: "a/b", Kind: Middleware}, `name "a/b"`},
		{Options{Name: "a-", Kind: Middleware}, "inner dashes"},
		{Options{Name: strings.Repeat("a", 29), Kind: Middleware}, "28"},
		{Options{Name: "1st", Kind: API}, "begins with a letter"},
		{Options{Name: "core", Kind: API}, "one of Kubernetes' own stages"},
		{Options{Name: "aggregator", Kind: Middleware}, "one of Kubernetes' own stages"},
		{Options{Name: "extensions", Kind: API}, "one of Kubernetes' own stages"},
		{Options{Name: "watch-events", Kind: API}, "has a kind WatchEvent already"},
		{Options{Name: "a", Kind: "plugin"}, "want middleware or api"},
		{Options{Name: "a", Kind: Middleware, Worker: true}, "--kind api"},
		{Options{Name: "a", Kind: Middleware, Module: "not a module"}, "no path of a Go module"},
		{Options{Name: "vendor", Kind: API}, "a meaning of its own"},
		{Options{Name: "a", Kind: Middleware, SDK: "/nowhere"}, "neither a version"},
	} {
		tc.opts.Dir = filepath.Join(t.TempDir(), "new")
		_, _, _, err := write(tc.opts)
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%+v: %v, want %s", tc.opts, err, tc.want)
		}
		if _, err := os.Stat(tc.opts.Dir); err == nil {
			t.Errorf("%+v: the directory was made", tc.opts)
		}
	}
}

// The SDK of a clone is taken from there.
func TestClone(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if _, _, _, err := write(Options{Name: "a", Kind: Middleware, Dir: dir, SDK: "../../.."}); err != nil {
		t.Fatal(err)
	}
	mod, _ := os.ReadFile(filepath.Join(dir, "go.mod"))
	if !strings.Contains(string(mod), "replace "+sdkModule+" => "+root+"\n") {
		t.Errorf("%s", mod)
	}
}

// offline keeps the go command from finding any module.
func offline(t *testing.T) {
	t.Helper()
	t.Setenv("GOPROXY", "off")
	t.Setenv("GOFLAGS", "-modcacherw")
	t.Setenv("GOMODCACHE", t.TempDir())
}

// Nothing is left of a stage whose modules cannot be found, so that the command can be run
// again.
func TestFailureLeavesNothing(t *testing.T) {
	offline(t)
	parent := t.TempDir()
	empty := filepath.Join(parent, "empty")
	if err := os.Mkdir(empty, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{filepath.Join(parent, "new"), filepath.Join(parent, "a", "b", "new"), empty} {
		for range 2 {
			_, _, err := Create(t.Context(), Options{Name: "a", Kind: Middleware, Dir: dir, SDK: "v0.3.0"})
			if err == nil || strings.Contains(err.Error(), "is not empty") {
				t.Errorf("%s: %v", dir, err)
			}
		}
	}
	for dir, want := range map[string]string{parent: "empty", empty: ""} {
		entries, err := os.ReadDir(dir)
		names := ""
		for _, e := range entries {
			names += e.Name()
		}
		if err != nil || names != want {
			t.Errorf("%s has %q, want %q; %v", dir, names, want, err)
		}
	}
}
