package handover

import (
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// openSelf opens the file of this process, also if its path names another one.
func openSelf(string) (*os.File, error) { return os.Open("/proc/self/exe") }

// pathOf is a path of an open file.
func pathOf(f *os.File) string { return fmt.Sprintf("/proc/self/fd/%d", f.Fd()) }

// execve replaces the program of this process. A process that is not dumpable may not look at its own files.
func execve(path string, arguments, environment []string) error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0); err != nil {
		return err
	}
	return syscall.Exec(path, arguments, environment)
}

func inherit(f *os.File) error { return setFlags(f, 0) }

func disinherit(f *os.File) error { return setFlags(f, unix.FD_CLOEXEC) }

func setFlags(f *os.File, flags int) error {
	if _, err := unix.FcntlInt(f.Fd(), unix.F_SETFD, flags); err != nil {
		return fmt.Errorf("inherited file %s: %w", f.Name(), err)
	}
	return nil
}
