package system

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/catena-dev/catena/test/internal/cluster"
)

// Limits of memory are in force again after a time in which the host could not look at processes.
func TestMemoryLimitsAfterAnError(t *testing.T) {
	t.Parallel()
	c := catena(t, cluster.Options{Set: []string{"stages.extensions.limits.memory=64Gi"}})
	logged := func(text string) func() bool {
		return func() bool { return strings.Contains(string(read(c.Process().Log)), text) }
	}
	var before unix.Rlimit
	pid := c.Process().PID()
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &before); err != nil {
		t.Fatal(err)
	}
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 1, Max: before.Max}, nil); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the log says that limits are not in force", logged("limits of memory are not in force until"))
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &before, nil); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the log says that they are again", logged("limits of memory are in force again"))
}
