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

// Root is the folder of the module.
func Root() string {
	_, file, _, ok := runtime.Caller(0)
	if !ok || !filepath.IsAbs(file) {
		panic("cluster: tests must not be built with -trimpath")
	}
	return filepath.Join(filepath.Dir(file), "..", "..", "..")
}

// Bin is the folder of the binaries: CATENA_BIN, which "make test" sets to what it
// has built, or bin/, which is then brought up to date once per test process.
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
// Catena would take for a part of its configuration.
func Environ() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "CATENA_BIN=") })
}

// Tool is the path of one of the binaries that Kubernetes brings: kubectl,
// kube-apiserver, kube-controller-manager, kube-scheduler, sample-apiserver.
func Tool(name string) (string, error) {
	bin, err := Bin()
	return filepath.Join(bin, "tools", name), err
}
