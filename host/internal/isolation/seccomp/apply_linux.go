package seccomp

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Apply puts this thread, and what it executes, under the filter. It cannot be undone. No new privileges
// have to be in effect.
func Apply(o Options) error {
	program, err := Filter(o)
	if err != nil {
		return fmt.Errorf("seccomp filter: %w", err)
	}
	prog := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&prog)))
	if errno != 0 {
		return fmt.Errorf("seccomp filter: %w", errno)
	}
	return nil
}

// Available returns why the kernel takes no filter.
func Available() error {
	if auditArch == 0 {
		return errors.New("not available on this architecture")
	}
	action := uint32(unix.SECCOMP_RET_ERRNO)
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_GET_ACTION_AVAIL, 0, uintptr(unsafe.Pointer(&action)))
	if errno != 0 {
		return errno
	}
	return nil
}
