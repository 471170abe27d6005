package server

import (
	"cmp"
	"os"
	"runtime"
	"runtime/debug"

	"github.com/catena-dev/catena/sdk/kubeversion"
)

// logVersions logs what runs, and how the Go runtime is set, as kube-apiserver does.
func (r *run) logVersions() {
	r.logs.host.Info("catena starts", "version", r.Version, "kubernetes", kubeversion.Release(), "go", runtime.Version(),
		"GOMAXPROCS", runtime.GOMAXPROCS(0), "GOMEMLIMIT", debug.SetMemoryLimit(-1), "GOGC", cmp.Or(os.Getenv("GOGC"), "100"))
}
