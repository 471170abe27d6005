// Package rules holds the rules of the repository that a compiler does not
// check: who may import what, and what go.mod may say.
package rules

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/catena-dev/catena/"

// list returns, for each package that the pattern matches, its imports without
// the standard library. With deps, these are all packages that it compiles.
func list(t *testing.T, field string, patterns ...string) map[string][]string {
	t.Helper()
	args := append([]string{"list", "-f", "{{.ImportPath}}\t{{join ." + field + " \" \"}}"}, patterns...)
	cmd := exec.Command("go", args...)
	cmd.Dir = filepath.Join("..", "..")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go %s: %v", strings.Join(args, " "), err)
	}
	imports := map[string][]string{}
	for line := range strings.Lines(string(out)) {
		pkg, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		for _, p := range strings.Fields(rest) {
			if first, _, _ := strings.Cut(p, "/"); strings.Contains(first, ".") {
				imports[pkg] = append(imports[pkg], p)
			}
		}
		if _, ok := imports[pkg]; !ok {
			imports[pkg] = nil
		}
	}
	return imports
}

func under(path string, prefixes ...string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return path == p || strings.HasPrefix(path, p+"/") })
}

// Only one package of the host uses each of the heavy libraries directly.
func TestSoleUsers(t *testing.T) {
	t.Parallel()
	rules := []struct {
		library string
		user    string
	}{
		{"github.com/knadh/koanf", "host/internal/config"},
		{"github.com/hashicorp/go-plugin", "host/internal/process"},
		{"k8s.io/apiserver", "host/internal/front"},
		{"k8s.io/kubernetes", "host/internal/front"},
		{"go.etcd.io/etcd/server/v3", "host/internal/store"},
		{"github.com/spf13/cobra", "host/internal/cli"},
	}
	for pkg, imports := range list(t, "Imports", "./host/...") {
		for _, imp := range imports {
			for _, r := range rules {
				if under(imp, r.library) && !under(pkg, module+r.user) {
					t.Errorf("%s imports %s, which only %s may", pkg, imp, r.user)
				}
			}
		}
	}
}

// What a package must not compile, however indirectly.
func TestForbiddenDependencies(t *testing.T) {
	t.Parallel()
	const requestinfo = "./internal/requestinfo"
	for pattern, forbidden := range map[string]func(string) bool{
		"./sdk/claim":               func(string) bool { return true },
		"./host/internal/chain":     func(p string) bool { return p != module+"sdk/claim" },
		"./host/internal/lifecycle": func(string) bool { return true },
		"./host/internal/relay/...": func(p string) bool {
			return strings.HasPrefix(p, "k8s.io/") || under(p, "github.com/hashicorp", "google.golang.org")
		},
		"./host/internal/relay/h1": func(p string) bool { return under(p, module+"host") },
		"./internal/http1":         func(string) bool { return true },
		"./internal/httpserver": func(p string) bool {
			return strings.Contains(p, ".") && p != module+"internal/http1" && !under(p, "golang.org/x", "vendor/golang.org/x")
		},
		"./internal/...": func(p string) bool {
			return strings.HasPrefix(p, "k8s.io/") || under(p, module+"host", module+"plugins", module+"sdk")
		},
		requestinfo: func(p string) bool {
			ours := under(p, module+"host", module+"plugins", module+"sdk") && p != module+"sdk/stagev1/header"
			return ours || under(p, "k8s.io/kubernetes")
		},
		"./host/internal/admin": func(p string) bool {
			return under(p, "k8s.io/apiserver", "k8s.io/kubernetes", "go.etcd.io/etcd/server")
		},
		"./sdk": func(p string) bool {
			k8s := strings.HasPrefix(p, "k8s.io/") && !under(p, "k8s.io/apimachinery")
			return k8s || under(p, "github.com/knadh/koanf", module+"host", module+"plugins")
		},
		"./sdk/...":     func(p string) bool { return under(p, module+"host", module+"plugins", "k8s.io/kubernetes") },
		"./plugins/...": func(p string) bool { return under(p, module+"host") },
	} {
		packages := list(t, "Deps", pattern)
		if len(packages) == 0 {
			t.Errorf("%s matches no package", pattern)
		}
		if pattern == "./internal/..." {
			delete(packages, module+strings.TrimPrefix(requestinfo, "./")) // it reads requests as kube-apiserver does
		}
		for pkg, deps := range packages {
			for _, dep := range deps {
				if forbidden(dep) {
					t.Errorf("%s depends on %s", pkg, dep)
				}
			}
		}
	}
}

// A replace line in go.mod is ignored in third parties' builds: what they compile
// would not be what we test.
func TestNoReplaceInGoMod(t *testing.T) {
	t.Parallel()
	out, err := exec.Command("go", "mod", "edit", "-json").Output()
	if err != nil {
		t.Fatal(err)
	}
	if regexp.MustCompile(`"Replace": \[`).Match(out) {
		t.Error("go.mod has replace lines")
	}
}

// What can be printed is decided in one place, and what commands print goes through it.
func TestTextsArePrintable(t *testing.T) {
	t.Parallel()
	for pattern, allowed := range map[string][]string{
		`unicode\.Is(Print|Control|Graphic)\b`: {"internal/printable/", "internal/process/logline.go", "internal/config/yamlline.go"}, // names of fields, and YAML's own set
		`fmt\.Fprint|tabwriter\.Escape`:        nil,
	} {
		files, err := filepath.Glob(filepath.Join(root, "host", "internal", "*", "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") || allowed == nil && !strings.Contains(file, "internal/cli/") ||
				slices.ContainsFunc(allowed, func(a string) bool { return strings.Contains(file, a) }) {
				continue
			}
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if found := regexp.MustCompile(pattern).Find(text); found != nil {
				t.Errorf("%s has %s, where package printable has to be used", file, found)
			}
		}
	}
}

// kubectl --match-server-version compares the commit that the Makefile stamps.
func TestCommitOfKubernetesIsKnown(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("go", "list", "-m", "-f", "{{.Version}}", "k8s.io/kubernetes")
	version, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	release := strings.TrimSpace(string(version))
	makefile, err := os.ReadFile(filepath.Join("..", "..", "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`(?m)^KUBE_COMMIT_` + regexp.QuoteMeta(release) + ` := ([0-9a-f]{40})$`)
	written := line.FindSubmatch(makefile)
	if written == nil {
		t.Fatalf("the Makefile has no KUBE_COMMIT_%s", release)
	}
	// Without a network, and with some proxies, the origin is unknown.
	cmd = exec.Command("go", "list", "-m", "-f", "{{with .Origin}}{{.Hash}}{{end}}", "k8s.io/kubernetes@"+release)
	origin, err := cmd.Output()
	if hash := strings.TrimSpace(string(origin)); err == nil && hash != "" && hash != string(written[1]) {
		t.Errorf("the Makefile says that %s is commit %s; its origin says %s", release, written[1], hash)
	}
}

// The platform of record is Linux on amd64, on which the tests run. What has code of its own for each system is built here for the
// others, and all of it by "make cross", because that takes minutes.
func TestCrossCompiles(t *testing.T) {
	if testing.Short() {
		t.Skip("cross-compiling takes a minute with a cold cache")
	}
	packages := []string{"build", "-pgo=off", "./sdk", "./sdk/stagetest"}
	for _, name := range []string{"chain", "config", "lifecycle", "pki", "process", "relay/...", "supervisor", "guard", "pluginwatch", "stagecheck"} {
		packages = append(packages, "./host/internal/"+name)
	}
	for _, target := range []string{"linux/arm64", "darwin/arm64"} {
		t.Run(strings.ReplaceAll(target, "/", "_"), func(t *testing.T) {
			goos, goarch, _ := strings.Cut(target, "/")
			cmd := exec.Command("go", packages...)
			cmd.Dir = filepath.Join("..", "..")
			cmd.Env = append(cmd.Environ(), "GOOS="+goos, "GOARCH="+goarch, "CGO_ENABLED=0")
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}
