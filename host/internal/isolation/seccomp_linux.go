package isolation

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// denied are system calls that fail with EPERM: those that reach into other processes, change
// the machine, or have been ways out of a sandbox.
func denied() []uint32 {
	return append([]uint32{
		unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_KCMP,
		unix.SYS_PIDFD_GETFD, unix.SYS_OPEN_BY_HANDLE_AT,
		unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD, unix.SYS_LOOKUP_DCOOKIE,
		unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER,
		unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT,
		unix.SYS_OPEN_TREE, unix.SYS_MOVE_MOUNT, unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK, unix.SYS_MOUNT_SETATTR,
		unix.SYS_UNSHARE, unix.SYS_SETNS,
		unix.SYS_KEYCTL, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY,
		unix.SYS_KEXEC_LOAD, unix.SYS_KEXEC_FILE_LOAD, unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE,
		unix.SYS_REBOOT, unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_ACCT, unix.SYS_QUOTACTL, unix.SYS_QUOTACTL_FD,
		unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_SETTIME,
		unix.SYS_SETHOSTNAME, unix.SYS_SETDOMAINNAME, unix.SYS_SYSLOG, unix.SYS_VHANGUP, unix.SYS_FANOTIFY_INIT,
		unix.SYS_NFSSERVCTL,
	}, deniedHere()...)
}

// Offsets in struct seccomp_data.
const (
	offsetCall = 0
	offsetArch = 4
	offsetArg0 = 16 // its lower half: all systems here are little-endian
)

// Results of the filter.
const (
	actionAllow = uint32(unix.SECCOMP_RET_ALLOW)
	actionKill  = uint32(unix.SECCOMP_RET_KILL_PROCESS)
	actionEPERM = uint32(unix.SECCOMP_RET_ERRNO) | uint32(unix.EPERM)
	// actionENOSYS makes the C library use clone, whose flags a filter can see, for clone3.
	actionENOSYS = uint32(unix.SECCOMP_RET_ERRNO) | uint32(unix.ENOSYS)
)

// newNamespaces are the flags of clone that make a namespace.
const newNamespaces = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET |
	unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP

// filter returns the program. A process of another architecture, which numbers its calls
// differently, is killed.
func filter() []unix.SockFilter {
	load := func(offset uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
	}
	end := func(action uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: action}
	}
	jump := func(op uint16, k uint32, ifTrue, ifFalse uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_K | op, K: k, Jt: ifTrue, Jf: ifFalse}
	}
	program := []unix.SockFilter{
		load(offsetArch), jump(unix.BPF_JEQ, auditArch, 1, 0), end(actionKill),
		load(offsetCall),
		jump(unix.BPF_JGE, firstForeignCall, 0, 1), end(actionEPERM),
		jump(unix.BPF_JEQ, unix.SYS_CLONE3, 0, 1), end(actionENOSYS),
	}
	for _, call := range denied() {
		program = append(program, jump(unix.BPF_JEQ, call, 0, 1), end(actionEPERM))
	}
	return append(program,
		jump(unix.BPF_JEQ, unix.SYS_CLONE, 0, 3),
		load(offsetArg0), jump(unix.BPF_JSET, newNamespaces, 0, 1), end(actionEPERM),
		end(actionAllow))
}

// applyFilter puts this thread, and what it executes, under the filter.
func applyFilter() error {
	program := filter()
	prog := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&prog)))
	if errno != 0 {
		return fmt.Errorf("seccomp filter: %w", errno)
	}
	return nil
}

// filterAvailable returns why the kernel takes no filter.
func filterAvailable() error {
	if auditArch == 0 {
		return fmt.Errorf("not available on this architecture")
	}
	action := actionEPERM &^ uint32(unix.SECCOMP_RET_DATA)
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_GET_ACTION_AVAIL, 0, uintptr(unsafe.Pointer(&action)))
	if errno != 0 {
		return errno
	}
	return nil
}
