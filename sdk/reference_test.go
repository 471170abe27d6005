package sdk_test

import (
	"flag"
	"fmt"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the generated parts of docs/sdk.md")

const reference = "../docs/sdk.md"

// topics are what is in the reference, under which heading.
var topics = []struct {
	name  string
	names []string
}{
	{"The stage", []string{"Stage.Name", "Stage.Version", "Stage.Summary", "Stage.New", "Stage.Config", "Stage.ConfigSchema", "Stage.Validate", "Stage.Tracing", "Main", "Serve"}},
	{"Who it is", []string{"Env.Name", "Env.Generation", "Env.DataDir", "Env.Flags", "Env.Config", "DecodeConfig", "ConfigProblem.Error"}},
	{"What it serves", []string{"Env.Claim", "Env.ClaimPrefix", "Env.SetClaims", "Exact", "Prefix", "Child", "Env.ListPaths", "Env.MuxComplete", "Env.ReportSizes"}},
	{"Requests", []string{"Env.Next", "Env.Call", "Decline", "UserFrom", "User.In", "Error", "AuditAnnotation", "Warn", "DrainingFrom"}},
	{"The server and other stages", []string{"Env.Client", "Env.Host", "Env.Delegates"}},
	{"What operators see", []string{"Env.Log", "Env.Metrics", "Env.AddMetrics", "Env.Tracer", "Env.HealthCheck"}},
	{"Its life", []string{"Env.OnPrepareRun", "Env.PostStartHook", "Env.PreShutdownHook", "Env.OnDestroy", "Env.Signal", "Env.Context", "Env.Draining"}},
}

// unlisted need no words in the reference.
var unlisted = []string{
	"Claim.Covers", "Claim.String", "Duration.MarshalText", "Duration.UnmarshalText", "Duration.String",
	"NewService", // for tests, see stagetest
}

// The reference has every exported function, method and field of the environment and
// of the stage, with the first sentence of its documentation; -update writes it.
func TestReference(t *testing.T) {
	known := documented(t)
	var b strings.Builder
	for _, topic := range topics {
		fmt.Fprintf(&b, "### %s\n\n| | |\n|---|---|\n", topic.name)
		for _, name := range topic.names {
			entry, ok := known[name]
			if !ok {
				t.Errorf("%s is not in the package", name)
				continue
			}
			delete(known, name)
			fmt.Fprintf(&b, "| `%s` | %s |\n", entry.form, entry.synopsis)
		}
		b.WriteString("\n")
	}
	for _, name := range unlisted {
		delete(known, name)
	}
	for _, name := range slices.Sorted(maps.Keys(known)) {
		t.Errorf("%s belongs to a topic of the reference", name)
	}
	checkGenerated(t, "reference", b.String())
}

// The table of examples has their real length.
func TestReferenceExamples(t *testing.T) {
	var b strings.Builder
	b.WriteString("| | lines | what it shows |\n|---|---|---|\n")
	for _, example := range []struct{ name, shows string }{
		{"hello", "one path"},
		{"readonly", "refusing, exemptions by configuration, audit annotations"},
		{"ratelimit", "state for each user, `Retry-After`, metrics"},
		{"cache", "calling, keeping answers, and when that is right"},
		{"tenancy", "changing requests, and who may"},
	} {
		fmt.Fprintf(&b, "| [%s](../examples/%[1]s) | %d | %s |\n", example.name, linesOf(t, "../examples/"+example.name), example.shows)
	}
	checkGenerated(t, "examples", b.String())
}

// linesOf counts the lines of a folder's programs without their tests.
func linesOf(t *testing.T, dir string) (lines int) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(path, "_test.go") {
			lines += strings.Count(string(text), "\n")
		}
	}
	return lines
}

// checkGenerated compares what is between the marks of a name with what it should be.
func checkGenerated(t *testing.T, name, want string) {
	t.Helper()
	begin, end := "<!-- "+name+" -->\n", "<!-- end -->"
	text, err := os.ReadFile(reference)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), begin)
	got, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s: no %q … %q", reference, begin, end)
	}
	if got == want {
		return
	}
	if !*update {
		t.Fatalf("%s: out of date; run go test -update (-want +got):\n%s", reference, cmp.Diff(want, got))
	}
	if err := os.WriteFile(reference, []byte(before+begin+want+end+after), 0o600); err != nil {
		t.Fatal(err)
	}
}

type entry struct{ form, synopsis string }

// documented returns what the package exports, as TYPE.NAME or NAME.
func documented(t *testing.T) map[string]entry {
	t.Helper()
	p := parsePackage(t)
	all := map[string]entry{}
	add := func(name, form, text string) {
		text = strings.ReplaceAll(strings.Join(strings.Fields(p.Synopsis(text)), " "), "|", `\|`)
		all[name] = entry{form, text}
	}
	for _, f := range p.Funcs {
		add(f.Name, f.Name, f.Doc)
	}
	for _, typ := range p.Types {
		for _, f := range typ.Funcs {
			add(f.Name, f.Name, f.Doc)
		}
		receiver := map[string]string{"Env": "env.", "User": "user.", "Stage": "Stage."}[typ.Name]
		if receiver == "" {
			receiver = typ.Name + "."
		}
		for _, m := range typ.Methods {
			if typ.Name != "Service" {
				add(typ.Name+"."+m.Name, receiver+m.Name, m.Doc)
			}
		}
		if typ.Name == "Env" || typ.Name == "Stage" {
			for name, text := range fields(typ) {
				add(typ.Name+"."+name, receiver+name, text)
			}
		}
	}
	return all
}

// fields returns the documentation of the exported fields of a struct.
func fields(typ *doc.Type) map[string]string {
	all := map[string]string{}
	for _, spec := range typ.Decl.Specs {
		s, ok := spec.(*ast.TypeSpec).Type.(*ast.StructType)
		if !ok {
			continue
		}
		for _, f := range s.Fields.List {
			for _, name := range f.Names {
				if name.IsExported() {
					all[name.Name] = f.Doc.Text()
				}
			}
		}
	}
	return all
}

func parsePackage(t *testing.T) *doc.Package {
	t.Helper()
	paths, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	set := token.NewFileSet()
	var files []*ast.File
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") || strings.HasSuffix(path, "_other.go") {
			continue
		}
		f, err := parser.ParseFile(set, path, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	p, err := doc.NewFromFiles(set, files, "github.com/catena-dev/catena/sdk")
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// The programs in the reference are as they say, and as long as they say.
func TestReferencePrograms(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(reference)
	if err != nil {
		t.Fatal(err)
	}
	most := []int{15, 25}
	var programs []string
	for _, block := range strings.Split(string(text), "```go\n")[1:] {
		program, _, _ := strings.Cut(block, "```")
		if strings.Contains(program, "package main") {
			programs = append(programs, program)
		}
	}
	if len(programs) != len(most) {
		t.Fatalf("%d programs, want %d", len(programs), len(most))
	}
	for i, program := range programs {
		if n := strings.Count(program, "\n"); n > most[i] {
			t.Errorf("program %d has %d lines, at most %d", i, n, most[i])
		}
		file := filepath.Join(t.TempDir(), "main.go")
		if err := os.WriteFile(file, []byte(program), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command("go", "vet", file).CombinedOutput(); err != nil {
			t.Errorf("program %d: %v\n%s", i, err, out)
		}
		if out, err := exec.Command("gofmt", "-l", file).CombinedOutput(); err == nil && len(out) > 0 {
			t.Errorf("program %d is not formatted", i)
		}
	}
	hello, err := os.ReadFile("../examples/hello/main.go")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(hello), programs[0]); diff != "" {
		t.Errorf("the first program is examples/hello: %s", diff)
	}
}
