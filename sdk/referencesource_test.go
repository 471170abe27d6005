package sdk_test

import (
	"cmp"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
)

// checkGenerated compares what is between the marks of a name with what it should be.
func checkGenerated(t *testing.T, file, name, want string) {
	t.Helper()
	begin, end := "<!-- "+name+" -->\n", "<!-- end -->"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), begin)
	got, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s: no %q … %q", file, begin, end)
	}
	if got == want {
		return
	}
	if !*update {
		t.Fatalf("%s: out of date; run go test -update (-want +got):\n%s", file, gocmp.Diff(want, got))
	}
	if err := os.WriteFile(file, []byte(before+begin+want+end+after), 0o600); err != nil {
		t.Fatal(err)
	}
}

type entry struct {
	// form is how a program writes it.
	form, synopsis string
	field          bool
}

// documented returns what a package exports, as TYPE.NAME or NAME. Receivers are what
// values of a type are called.
func documented(p *doc.Package, receivers map[string]string) map[string]entry {
	all := map[string]entry{}
	add := func(name, form, text string) { all[name] = entry{form: form, synopsis: cell(p.Synopsis(text))} }
	for _, f := range p.Funcs {
		add(f.Name, f.Name, f.Doc)
	}
	for _, typ := range p.Types {
		for _, f := range typ.Funcs {
			add(f.Name, f.Name, f.Doc)
		}
		receiver := typ.Name
		if as, ok := receivers[typ.Name]; ok {
			receiver = as
		}
		for _, m := range typ.Methods {
			add(typ.Name+"."+m.Name, receiver+"."+m.Name, m.Doc)
		}
		for _, f := range fields(typ) {
			for _, name := range f.names {
				all[typ.Name+"."+name] = entry{receiver + "." + name, cmp.Or(cell(p.Synopsis(f.text)), "`"+f.typ+"`"), true}
			}
		}
	}
	return all
}

// cell is a text for a table.
func cell(text string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(text), " "), "|", `\|`)
}

// structField is a declaration of exported fields, as in "Plural, Singular string".
type structField struct {
	names []string
	// typ is how the type is written.
	typ, text string
}

// fields returns the exported fields of a struct, in their order.
func fields(typ *doc.Type) (all []structField) {
	for _, spec := range typ.Decl.Specs {
		s, ok := spec.(*ast.TypeSpec).Type.(*ast.StructType)
		if !ok {
			continue
		}
		for _, f := range s.Fields.List {
			field := structField{typ: types.ExprString(f.Type), text: f.Doc.Text()}
			for _, name := range f.Names {
				if name.IsExported() {
					field.names = append(field.names, name.Name)
				}
			}
			if len(f.Names) == 0 {
				field.names = []string{strings.TrimPrefix(field.typ, "*")}
			}
			if len(field.names) > 0 {
				all = append(all, field)
			}
		}
	}
	return all
}

// parsePackage reads the package in a directory below this one.
func parsePackage(t *testing.T, dir string) *doc.Package {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	set := token.NewFileSet()
	var files []*ast.File
	for _, file := range paths {
		if strings.HasSuffix(file, "_test.go") || strings.HasSuffix(file, "_other.go") {
			continue
		}
		f, err := parser.ParseFile(set, file, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	p, err := doc.NewFromFiles(set, files, path.Join("github.com/catena-dev/catena/sdk", dir))
	if err != nil {
		t.Fatal(err)
	}
	return p
}
