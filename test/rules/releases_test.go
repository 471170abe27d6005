package rules

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/mod/modfile"
)

// The stages are built against each release of Kubernetes with the modules of go.mod, but for those that are
// released with Kubernetes and what only its programs need. docs/new-release.md says what to do if this fails.
func TestReleases(t *testing.T) {
	t.Parallel()
	own := required(t, filepath.Join(root, "go.mod"))
	files, err := filepath.Glob(filepath.Join(root, "versions", "*", "go.mod"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		minor := filepath.Base(filepath.Dir(file))
		other := required(t, file)
		from, to := own["k8s.io/kubernetes"].Mod.Version, other["k8s.io/kubernetes"].Mod.Version
		if !strings.HasPrefix(to, "v"+minor+".") {
			t.Errorf("%s: k8s.io/kubernetes is %s", file, to)
		}
		for path, r := range other {
			if own[path] == nil && !r.Indirect {
				t.Errorf("%s: %s is not in go.mod: run make versions", file, path)
			}
		}
		for path, r := range own {
			if path == "github.com/container-storage-interface/spec" { // of kube-controller-manager alone
				continue
			}
			version := r.Mod.Version
			want := version
			if strings.HasPrefix(path, "k8s.io/") && strings.TrimPrefix(version[1:], "0.") == strings.TrimPrefix(from[1:], "1.") {
				want = "v0." + strings.TrimPrefix(to[1:], "1.")
			}
			if path == "k8s.io/kubernetes" {
				want = to
			}
			if got := other[path]; got == nil || got.Mod.Version != want {
				t.Errorf("%s: %s is %v, want %s: run make versions", file, path, got, want)
			}
		}
	}
}

func required(t *testing.T, file string) map[string]*modfile.Require {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	mod, err := modfile.Parse(file, text, nil)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]*modfile.Require{}
	for _, r := range mod.Require {
		all[r.Mod.Path] = r
	}
	return all
}
