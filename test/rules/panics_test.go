package rules

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// uncontained are the functions of the host with a goroutine, or a call of a handler, whose panic ends the host: none of them is about one
// stage or one connection, or what they call contains it.
var uncontained = map[string]string{
	"admin.watch":              "runs in commands, not in the host",
	"admin.serveSocket":        "net/http",
	"connlimit.End":            "waits",
	"front.Run":                "Kubernetes' server",
	"front.Hops":               "counters of this process",
	"front.followShutdown":     "waits",
	"guard.dialAs":             "connects",
	"h1.StartUpload":           "end recovers",
	"lifecycle.RunPostStart":   "run recovers",
	"lifecycle.RunPreShutdown": "run recovers",
	"pki.newServiceAccountKey": "crypto/rsa",
	"process.AdoptOrphans":     "reaps processes",
	"process.Refuse":           "accepts connections and writes a constant",
	"process.Stop":             "go-plugin's end of a client",
	"process.drain":            "waits",
	"process.end":              "gRPC's end of a client",
	"process.run":              "closes files",
	"process.start":            "waits for a process",
	"relay.SetSplit":           "ends connections",
	"relay.add":                "waits",
	"relay.notFound":           "is called by a handler",
	"server.buildChain":        "systemd's notifications; the end by force",
	"server.drainStages":       "waits",
	"server.serveCalls":        "net/http",
	"server.runFront":          "Kubernetes' server",
	"store.Open":               "looks at the data directory",
	"store.close":              "the end of etcd",
	"store.serve":              "gRPC, whose calls are contained",
	"store.serveClients":       "etcd's own calls, of stages that are granted the registry",
	"store.startEmbedded":      "waits",
}

// TestPanicsAreContained shows that what runs for a stage or a connection cannot end the host: each goroutine of the host says what becomes of a
// panic, and so does each call of a handler that net/http does not make.
func TestPanicsAreContained(t *testing.T) {
	t.Parallel()
	found := map[string]bool{}
	host := filepath.Join("..", "..", "host", "internal")
	err := filepath.WalkDir(host, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		rel, err := filepath.Rel(host, path)
		if err != nil || under(filepath.ToSlash(rel), "cli", "dev", "scaffold", "stagecheck", "support", "panics", "process/processtest") {
			return err // these are not part of a host that serves
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, nil, 0)
		if err != nil {
			return err
		}
		for _, decl := range file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || f.Body == nil {
				continue
			}
			name := file.Name.Name + "." + f.Name.Name
			for _, n := range escapes(f.Body, handles(f.Type)) {
				found[name] = true
				if _, ok := uncontained[name]; !ok {
					t.Errorf("%s: %s has a goroutine, or calls a handler, whose panic ends the host: see package panics", set.Position(n.Pos()), name)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range slices.Sorted(maps.Keys(uncontained)) {
		if !found[name] {
			t.Errorf("%s is listed, and has nothing that could end the host", name)
		}
	}
}

// escapes returns the goroutines in a node, and the calls of handlers by what is no handler itself, that do not say what becomes of a panic.
func escapes(n ast.Node, handler bool) []ast.Node {
	var all []ast.Node
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			all = append(all, escapes(n.Body, handler || handles(n.Type))...)
			return false
		case *ast.GoStmt:
			if !contains(n) {
				all = append(all, n)
			}
			return false
		case *ast.CallExpr:
			s, ok := n.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if s.Sel.Name == "Go" && len(n.Args) == 1 && !contains(n) || s.Sel.Name == "ServeHTTP" && !handler {
				all = append(all, n)
			}
			if id, ok := s.X.(*ast.Ident); ok && id.Name == "panics" {
				return false
			}
		}
		return true
	})
	return all
}

// handles reports whether a function has the parameters of a handler: its caller looks after what it calls.
func handles(f *ast.FuncType) bool {
	for _, p := range f.Params.List {
		if s, ok := p.Type.(*ast.SelectorExpr); ok && s.Sel.Name == "ResponseWriter" {
			return true
		}
	}
	return false
}

// contains reports whether a node says what becomes of a panic.
func contains(n ast.Node) bool {
	does := false
	ast.Inspect(n, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && (id.Name == "panics" || id.Name == "recover") {
			does = true
		}
		return !does
	})
	return does
}
