// Package startgc makes the start of a program that imports it cheaper. Most of what a start allocates stays, and is
// looked at for nothing each time that garbage is collected: until [End], that is when the heap has grown to five times
// what is live, rather than to twice.
//
// Packages are initialized in the order of their paths, as far as their imports allow: this one, which imports next to
// nothing, comes before those of Kubernetes, which allocate 10 MiB when they are initialized.
package startgc

import (
	"os"
	"runtime/debug"
)

// percent is GOGC during the start, and standard what it is by default.
const percent, standard = 400, 100

func init() { set(percent) }

// End is to be called before what leaves much garbage, or when the start is over.
// [github.com/catena-dev/catena/internal/gctune.Headroom] does so too. With GOGC in the environment, nothing changes.
func End() { set(standard) }

func set(percent int) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(percent)
	}
}
