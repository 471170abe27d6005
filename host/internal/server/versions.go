package server

import (
	"cmp"
	"math"
	"os"
	"runtime"
	"runtime/debug"

	"github.com/hashicorp/go-hclog"

	"github.com/catena-dev/catena/sdk/kubeversion"
)

// logVersions logs what runs, and how the Go runtime is set, as kube-apiserver does.
func logVersions(log hclog.Logger, version string) {
	log.Info("catena starts", "version", version, "kubernetes", kubeversion.Release(), "go", runtime.Version(),
		"GOMAXPROCS", runtime.GOMAXPROCS(0), "GOMEMLIMIT", memoryLimit(), "GOGC", cmp.Or(os.Getenv("GOGC"), "100"))
}

// memoryLimit is that of Go's runtime, in bytes, or off as GOMEMLIMIT has it.
func memoryLimit() any {
	if limit := debug.SetMemoryLimit(-1); limit < math.MaxInt64 {
		return limit
	}
	return "off"
}
