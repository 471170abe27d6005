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
// fields say. What it guards of a stage is in the field guarded, which is for functions that take the lock, or are given what it returns.
func TestStateIsLocked(t *testing.T) {
	t.Parallel()
	may := map[string]bool{"New": true, "lock": true, "onProbation": true, "Incomplete": true}
	files, err := filepath.Glob(filepath.Join("..", "..", "host", "internal", "supervisor", "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	found, guarded := 0, 0
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
				s, ok := n.(*ast.SelectorExpr)
				switch {
				case ok && s.Sel.Name == "locked":
					found++
					if !may[fn.Name.Name] {
						t.Errorf("%s: %s has the state without the lock: call lock", set.Position(s.Pos()), fn.Name.Name)
					}
				case ok && s.Sel.Name == "guarded":
					guarded++
					if fn.Name.Name != "newStage" && !hasLock(fn) {
						t.Errorf("%s: %s has the state of a stage without the lock: take a *locked", set.Position(s.Pos()), fn.Name.Name)
					}
				}
				return true
			})
		}
	}
	if found == 0 || guarded == 0 {
		t.Error("nothing is called locked, or guarded")
	}
}

// hasLock reports whether a function, or one in it, is given what the lock guards, or takes the lock.
func hasLock(fn *ast.FuncDecl) (has bool) {
	ast.Inspect(fn, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.StarExpr:
			name, ok := n.X.(*ast.Ident)
			has = has || ok && name.Name == "locked"
		case *ast.CallExpr:
			s, ok := n.Fun.(*ast.SelectorExpr)
			has = has || ok && s.Sel.Name == "lock"
		}
		return !has
	})
	return has
}
