package rules

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

var update = flag.Bool("update", false, "lower the ceilings of testdata/budgets.txt to what is there")

// budgets are how large something may be that testdata/budgets.txt does not name, and to which multiple its lines there are rounded up.
var budgets = map[string]struct{ limit, round int }{
	"lines":   {500, 100}, // of a package, without tests and generated code
	"methods": {25, 1},    // of a type
	"fields":  {20, 1},    // of a struct
	"funcs":   {5, 1},     // fields of Options or Config that are functions: each is a dependency that no import shows
	"imports": {15, 1},    // packages of the host that a package imports
	"total":   {0, 50},    // lines of host, sdk or plugins, without tests and generated code; of tests, those of the _test.go files of all
	"long":    {0, 5},     // lines of host, sdk or plugins with more than longLine columns
	"words":   {0, 1},     // occurrences of what others say better, see words
}

const (
	// longLine and tabWidth are in columns.
	longLine = 140
	tabWidth = 4
	// longReason is how long a reason may be. How a ceiling came to be what it is, is in the history of the file.
	longReason = 80
)

// size is what something counts, such as the methods of a type.
type size struct{ kind, name string }

// What is larger than most grows by decision alone: a line of testdata/budgets.txt that somebody raises, with the reason.
// What has become smaller stays so.
func TestBudgets(t *testing.T) {
	t.Parallel()
	file := filepath.Join("testdata", "budgets.txt")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	sizes, want := measure(t), bytes.Buffer{}
	listed := map[size]bool{}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			want.WriteString(line)
			continue
		}
		f := strings.Fields(line)
		if len(f) < 4 || budgets[f[0]].round == 0 {
			t.Fatalf("%s: %q, want KIND NAME CEILING REASON", file, line)
		}
		s := size{f[0], f[1]}
		ceiling, err := strconv.Atoi(f[2])
		if err != nil {
			t.Fatalf("%s: %q: %v", file, line, err)
		}
		if reason := strings.Join(f[3:], " "); utf8.RuneCountInString(reason) > longReason || strings.Contains(reason, ";") {
			t.Errorf("%s: the reason of %s %s is no single clause of at most %d characters", file, s.kind, s.name, longReason)
		}
		listed[s] = true
		if sizes[s] > ceiling {
			t.Errorf("%s has %d %s, and may have %d: make it smaller, or raise the line of %s and say why", s.name, sizes[s], s.kind, ceiling, file)
		}
		if sizes[s] > budgets[s.kind].limit {
			want.WriteString(budgetLine(s, min(ceiling, s.rounded(sizes[s])), strings.Join(f[3:], " ")))
		}
	}
	for s, n := range sizes {
		if limit := budgets[s.kind].limit; n > limit && !listed[s] {
			t.Errorf("%s has %d %s, and may have %d: make it smaller, or write a line into %s:\n%s", s.name, n, s.kind, limit, file,
				budgetLine(s, s.rounded(n), "REASON"))
		}
	}
	switch {
	case bytes.Equal(text, want.Bytes()):
	case *update:
		if err := os.WriteFile(file, want.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s allows more than there is, or is not laid out as it is written: go test ./test/rules -update", file)
	}
}

func (s size) rounded(n int) int {
	round := budgets[s.kind].round
	return (n + round - 1) / round * round
}

func budgetLine(s size, ceiling int, reason string) string {
	return fmt.Sprintf("%-8s %-53s %5d  %s\n", s.kind, s.name, ceiling, reason)
}

// measure returns all sizes of the code that is not of tests and not generated, and the total of tests.
func measure(t *testing.T) map[size]int {
	t.Helper()
	sizes := map[size]int{}
	seen := map[size]bool{} // what has a file for each system counts once
	for _, text := range documents(t) {
		countWords(sizes, text)
	}
	for _, dir := range []string{"host", "sdk", "internal", "plugins", "examples", "test"} {
		own := dir != "examples" && dir != "test"
		err := filepath.WalkDir(filepath.Join(root, dir), func(file string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, ".pb.go") {
				return err
			}
			rel, err := filepath.Rel(root, file)
			if err != nil || strings.Contains(rel, "testdata") {
				return err
			}
			text, err := os.ReadFile(file)
			switch {
			case err != nil:
				return err
			case strings.HasSuffix(file, "_test.go"):
				sizes[size{"total", "tests"}] += bytes.Count(text, []byte("\n"))
				return nil
			case !own:
				return nil
			}
			parsed, err := parser.ParseFile(token.NewFileSet(), file, text, 0)
			if err != nil {
				return err
			}
			pkg := filepath.ToSlash(filepath.Dir(rel))
			sizes[size{"lines", pkg}] += bytes.Count(text, []byte("\n"))
			part := dir
			if dir == "internal" { // what host and SDK have in common, and others do not import
				part = "sdk"
			}
			sizes[size{"total", part}] += bytes.Count(text, []byte("\n"))
			sizes[size{"long", part}] += longLines(string(text))
			countWords(sizes, string(text))
			measureImports(sizes, seen, pkg, parsed)
			measureTypes(sizes, seen, pkg, parsed)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return sizes
}

func longLines(text string) int {
	n := 0
	for line := range strings.Lines(text) {
		if utf8.RuneCountInString(strings.TrimSuffix(line, "\n"))+(tabWidth-1)*strings.Count(line, "\t") > longLine {
			n++
		}
	}
	return n
}

func measureImports(sizes map[size]int, seen map[size]bool, pkg string, parsed *ast.File) {
	for _, imp := range parsed.Imports {
		if name, _ := strconv.Unquote(imp.Path.Value); under(name, module+"host/internal") && !seen[size{pkg, name}] {
			seen[size{pkg, name}] = true
			sizes[size{"imports", pkg}]++
		}
	}
}

func measureTypes(sizes map[size]int, seen map[size]bool, pkg string, parsed *ast.File) {
	for _, decl := range parsed.Decls {
		switch decl := decl.(type) {
		case *ast.FuncDecl:
			name := pkg + "." + receiver(decl)
			if method := (size{name, decl.Name.Name}); decl.Recv != nil && !seen[method] {
				seen[method] = true
				sizes[size{"methods", name}]++
			}
		case *ast.GenDecl:
			for _, spec := range decl.Specs {
				if s, ok := spec.(*ast.TypeSpec); ok {
					measureStruct(sizes, pkg+"."+s.Name.Name, s)
				}
			}
		}
	}
}

// receiver returns the name of the type that a method is of.
func receiver(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return ""
	}
	switch x := ast.Unparen(f.Recv.List[0].Type).(type) {
	case *ast.StarExpr:
		return baseName(x.X)
	default:
		return baseName(x)
	}
}

// baseName returns the name of a type without its parameters.
func baseName(x ast.Expr) string {
	switch x := x.(type) {
	case *ast.Ident:
		return x.Name
	case *ast.IndexExpr:
		return baseName(x.X)
	case *ast.IndexListExpr:
		return baseName(x.X)
	}
	return ""
}

func measureStruct(sizes map[size]int, name string, spec *ast.TypeSpec) {
	s, ok := spec.Type.(*ast.StructType)
	if !ok {
		return
	}
	fields, funcs := 0, 0
	for _, f := range s.Fields.List {
		n := max(1, len(f.Names))
		fields += n
		if _, ok := f.Type.(*ast.FuncType); ok {
			funcs += n
		}
	}
	sizes[size{"fields", name}] = max(fields, sizes[size{"fields", name}])
	if last := path.Ext(name); last == ".Options" || last == ".Config" {
		sizes[size{"funcs", name}] = max(funcs, sizes[size{"funcs", name}])
	}
}
