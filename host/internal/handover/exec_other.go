//go:build !linux

package handover

import (
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// openSelf opens the file of this process.
func openSelf(path string) (*os.File, error) { return os.Open(path) }

// pathOf is the path of an open file: this system executes none by its number.
func pathOf(f *os.File) string { return f.Name() }

func execve(path string, arguments, environment []string) error {
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
