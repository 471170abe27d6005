package rules

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// TestStateIsLocked shows that what the lock of the supervisor guards is had with the lock alone: by those who make it, and by what atomic
// fields say.
func TestStateIsLocked(t *testing.T) {
	t.Parallel()
	may := map[string]bool{"New": true, "lock": true, "onProbation": true, "Incomplete": true}
	files, err := filepath.Glob(filepath.Join("..", "..", "host", "internal", "supervisor", "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		set := token.NewFileSet()
		f, err := parser.ParseFile(set, file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			ast.Inspect(fn, func(n ast.Node) bool {
				if s, ok := n.(*ast.SelectorExpr); ok && s.Sel.Name == "locked" {
					found++
					if !may[fn.Name.Name] {
						t.Errorf("%s: %s has the state without the lock: call lock", set.Position(s.Pos()), fn.Name.Name)
					}
				}
				return true
			})
		}
	}
	if found == 0 {
		t.Error("nothing is called locked")
	}
}
