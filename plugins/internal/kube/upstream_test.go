package kube

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	controlplaneapiserver "k8s.io/kubernetes/pkg/controlplane/apiserver"
)

// kubernetesDir is the directory of the k8s.io/kubernetes that go.mod requires.
func kubernetesDir(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/kubernetes").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	return strings.TrimSpace(string(out))
}

func parseKubernetes(t *testing.T, file string) *ast.File {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(kubernetesDir(t), file), nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// coreGroups is a copy of a table that Kubernetes does not export.
func TestPrioritiesAreThoseOfKubernetes(t *testing.T) {
	t.Parallel()
	theirs := controlplaneapiserver.DefaultGenericAPIServicePriorities()
	maps.Copy(theirs, apiVersionPriorities(t, parseKubernetes(t, "cmd/kube-apiserver/app/aggregator.go")))
	ours := priorities(nil)
	for gv, want := range theirs {
		if ours[gv] != want {
			t.Errorf("%s has %+v, want %+v", gv, ours[gv], want)
		}
	}
	for gv := range ours {
		if _, ok := theirs[gv]; !ok {
			t.Errorf("Kubernetes has no priority for %s", gv)
		}
	}
}

// apiVersionPriorities returns the entries of map literals in f that look like
//
//	{Group: "apps", Version: "v1"}: {Group: 17800, Version: 15}
func apiVersionPriorities(t *testing.T, f *ast.File) priorityMap {
	t.Helper()
	found := priorityMap{}
	ast.Inspect(f, func(n ast.Node) bool {
		entry, ok := n.(*ast.KeyValueExpr)
		if !ok {
			return true
		}
		key, priority := groupAndVersion(entry.Key), groupAndVersion(entry.Value)
		if key == nil || priority == nil {
			return true
		}
		gv := schema.GroupVersion{Group: unquote(t, key[0]), Version: unquote(t, key[1])}
		found[gv] = controlplaneapiserver.APIServicePriority{Group: number(t, priority[0]), Version: number(t, priority[1])}
		return false
	})
	if len(found) == 0 {
		t.Fatal("Kubernetes' table has another form, or is in another file")
	}
	return found
}

// groupAndVersion returns the values of the fields Group and Version of a composite
// literal that has these two, nil for anything else.
func groupAndVersion(e ast.Expr) []string {
	literal, ok := e.(*ast.CompositeLit)
	if !ok || len(literal.Elts) != 2 {
		return nil
	}
	var values []string
	for i, name := range []string{"Group", "Version"} {
		field, ok := literal.Elts[i].(*ast.KeyValueExpr)
		if !ok {
			return nil
		}
		key, isName := field.Key.(*ast.Ident)
		value, isBasic := field.Value.(*ast.BasicLit)
		if !isName || !isBasic || key.Name != name {
			return nil
		}
		values = append(values, value.Value)
	}
	return values
}

func unquote(t *testing.T, literal string) string {
	t.Helper()
	s, err := strconv.Unquote(literal)
	if err != nil {
		t.Fatalf("string %s: %v", literal, err)
	}
	return s
}

func number(t *testing.T, literal string) int32 {
	t.Helper()
	n, err := strconv.ParseInt(literal, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	return int32(n)
}

// Packages that kube-apiserver imports for their side effect register metrics. What that of the version
// registers is of kubeversion here, which knows it without linker flags.
func TestMetricsAreRegisteredAsInKubeAPIServer(t *testing.T) {
	t.Parallel()
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	compiled := strings.Fields(string(out))
	for _, file := range []string{"cmd/kube-apiserver/apiserver.go", "cmd/kube-apiserver/app/server.go"} {
		for _, spec := range parseKubernetes(t, file).Imports {
			path := unquote(t, spec.Path.Value)
			if strings.HasPrefix(path, "k8s.io/component-base/metrics/") && path != "k8s.io/component-base/metrics/prometheus/version" && !slices.Contains(compiled, path) {
				t.Errorf("kube-apiserver imports %s, the stages do not", path)
			}
		}
	}
}
