// Package usage measures what a process uses together with all that it has started and that descends
// from it still. A process group means nothing: any process can enter that of another one of its session.
//
// Memory is what the kernel cannot drop: anonymous and shared memory (RssAnon and RssShmem of
// /proc/PID/status), not the pages of the binary and of other files. Memory that
// processes share counts for each.
package usage

import (
	"errors"
	"time"
)

// ErrUnsupported is why nothing can be measured on a system other than Linux.
var ErrUnsupported = errors.New("the use of memory and CPU is measured on Linux only")

// Usage is what a process and its descendants use.
type Usage struct {
	// Memory is in bytes.
	Memory int64
	// CPU is the time since the start of the process, in user and kernel mode. It can
	// decrease when a descendant has ended for which no other process has waited.
	CPU time.Duration
	// PIDs are the processes.
	PIDs []int
}
