// Package cluster runs API servers for tests: Catena and kube-apiserver, as real
// processes with real clients.
package cluster

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
)

// Root is the directory of the module.
func Root() string {
	_, file, _, ok := runtime.Caller(0)
	if !ok || !filepath.IsAbs(file) {
		panic("cluster: tests must not be built with -trimpath")
	}
	return filepath.Join(filepath.Dir(file), "..", "..", "..")
}

// Bin is the directory of the binaries: CATENA_BIN, which "make test" sets, or
// bin/, which is then built once per test process.
var Bin = sync.OnceValues(func() (string, error) {
	if dir := os.Getenv("CATENA_BIN"); dir != "" {
		return dir, nil
	}
	cmd := exec.Command("make", "--silent", "build", "tools")
	cmd.Dir = Root()
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("make build tools: %w\n%s", err, out)
	}
	return filepath.Join(Root(), "bin"), nil
})

// Environ is the environment of this process without the variable of the tests, which
// Catena would treat as configuration.
func Environ() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "CATENA_BIN=") })
}

// Tool returns the path of a binary of Kubernetes: kubectl,
// kube-apiserver, kube-controller-manager, kube-scheduler, sample-apiserver.
func Tool(name string) (string, error) {
	bin, err := Bin()
	return filepath.Join(bin, "tools", name), err
}

// ToolOf returns the path of a binary of a minor release of Kubernetes, such as 1.36, "" for that of go.mod.
// "make tools KUBE=1.36" builds those of another release.
func ToolOf(name, release string) (string, error) {
	if release == "" {
		return Tool(name)
	}
	return ofRelease(release, "tools", filepath.Join("tools", name))
}

// Stage returns the binary of a stage of a minor release of Kubernetes, "" for that of go.mod. "make stages
// KUBE=1.36" builds those of another release.
func Stage(name, release string) (string, error) {
	if release == "" {
		bin, err := Bin()
		return filepath.Join(bin, "plugins", "catena-stage-"+name), err
	}
	return ofRelease(release, "stages", "catena-stage-"+name)
}

func ofRelease(release, target, path string) (string, error) {
	bin, err := Bin()
	if err != nil {
		return "", err
	}
	path = filepath.Join(bin, "kube-"+release, path)
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("make %s KUBE=%s builds it: %w", target, release, err)
	}
	return path, nil
}
