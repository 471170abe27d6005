package hostile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// machine is a kind of machine, as which this one can be made to look to a host and what it starts.
type machine string

const (
	whole machine = ""
	// container is one of Docker's, or of another runtime with its default profile: no namespaces can be made in it, and
	// root has a part of the capabilities.
	container machine = "container"
	// noLandlock is a kernel before Linux 5.13, or without it.
	noLandlock machine = "no-landlock"
	// oldLandlock is a kernel with the first version of Landlock.
	oldLandlock machine = "old-landlock"
	// oldContainer is both.
	oldContainer machine = "old-container"
)

func (m machine) title() string {
	return map[machine]string{
		container: "container", noLandlock: "no Landlock", oldLandlock: "Landlock 1", oldContainer: "container with Landlock 1",
	}[m]
}

// run executes Catena on such a machine, in the place of this process. It is called as MACHINE/catena; the program is MACHINE/real/catena.
func (m machine) run() error {
	runtime.LockOSThread() // the filter is that of a thread, and of what it executes
	dir := filepath.Dir(os.Args[0])
	if os.Geteuid() != 0 {
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return fmt.Errorf("no new privileges: %w", err)
		}
	}
	var filter []unix.SockFilter
	if m == oldLandlock || m == oldContainer {
		if err := answerLandlock(1); err != nil {
			return err
		}
	}
	if m == noLandlock {
		filter = append(filter, returning(unix.SYS_LANDLOCK_CREATE_RULESET, unix.EOPNOTSUPP)...)
	}
	if m == container || m == oldContainer {
		for _, call := range refusedByDocker() {
			filter = append(filter, returning(call, unix.EPERM)...)
		}
		filter = append(filter, returning(unix.SYS_CLONE3, unix.ENOSYS)...)
		filter = append(filter, // new namespaces
			jump(unix.BPF_JEQ, unix.SYS_CLONE, 0, 4), load(16), jump(unix.BPF_JSET, 0x7e020000, 0, 1), result(unix.EPERM), end(unix.SECCOMP_RET_ALLOW))
	}
	if _, err := install(append([]unix.SockFilter{load(0)}, append(filter, end(unix.SECCOMP_RET_ALLOW))...), 0); err != nil {
		return err
	}
	if os.Geteuid() == 0 && (m == container || m == oldContainer) {
		if err := dropToDocker(); err != nil {
			return err
		}
	}
	program := filepath.Join(dir, "real", "catena")
	return syscall.Exec(program, append([]string{program}, os.Args[1:]...), os.Environ())
}

// refusedByDocker are the calls that Docker's default profile refuses without capabilities, as far as they exist still.
func refusedByDocker() []uint32 {
	return []uint32{
		unix.SYS_SYSLOG, unix.SYS_VHANGUP, unix.SYS_PIVOT_ROOT, unix.SYS_ACCT, unix.SYS_SETTIMEOFDAY, unix.SYS_MOUNT, unix.SYS_UMOUNT2,
		unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_REBOOT, unix.SYS_SETHOSTNAME, unix.SYS_SETDOMAINNAME, unix.SYS_INIT_MODULE, unix.SYS_DELETE_MODULE,
		unix.SYS_QUOTACTL, unix.SYS_LOOKUP_DCOOKIE, unix.SYS_CLOCK_SETTIME, unix.SYS_MBIND, unix.SYS_SET_MEMPOLICY, unix.SYS_GET_MEMPOLICY,
		unix.SYS_KEXEC_LOAD, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_KEYCTL, unix.SYS_MIGRATE_PAGES, unix.SYS_UNSHARE, unix.SYS_MOVE_PAGES,
		unix.SYS_PERF_EVENT_OPEN, unix.SYS_FANOTIFY_INIT, unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_SETNS, unix.SYS_KCMP, unix.SYS_FINIT_MODULE,
		unix.SYS_KEXEC_FILE_LOAD, unix.SYS_BPF, unix.SYS_USERFAULTFD, unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER,
		unix.SYS_OPEN_TREE, unix.SYS_MOVE_MOUNT, unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK, unix.SYS_PIDFD_GETFD,
		unix.SYS_PROCESS_MADVISE, unix.SYS_MOUNT_SETATTR, unix.SYS_QUOTACTL_FD, unix.SYS_SET_MEMPOLICY_HOME_NODE,
	}
}

// dropToDocker leaves the capabilities that Docker gives root.
func dropToDocker() error {
	kept := []uintptr{
		unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_FSETID, unix.CAP_FOWNER, unix.CAP_MKNOD, unix.CAP_NET_RAW, unix.CAP_SETGID, unix.CAP_SETUID,
		unix.CAP_SETFCAP, unix.CAP_SETPCAP, unix.CAP_NET_BIND_SERVICE, unix.CAP_SYS_CHROOT, unix.CAP_KILL, unix.CAP_AUDIT_WRITE,
	}
	var sets [2]unix.CapUserData
	for c := uintptr(0); c <= unix.CAP_LAST_CAP; c++ {
		if slices.Contains(kept, c) {
			sets[c/32].Permitted |= 1 << (c % 32)
			continue
		}
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil {
			return fmt.Errorf("drop a capability: %w", err)
		}
	}
	for i := range sets {
		sets[i].Effective = sets[i].Permitted
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	return unix.Capset(&header, &sets[0])
}

func load(offset uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
}

func jump(op uint16, k uint32, ifTrue, ifFalse uint8) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_K | op, K: k, Jt: ifTrue, Jf: ifFalse}
}

func end(result uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: result}
}

func result(errno syscall.Errno) unix.SockFilter {
	return end(unix.SECCOMP_RET_ERRNO | uint32(errno))
}

// returning has a call fail.
func returning(call uint32, errno syscall.Errno) []unix.SockFilter {
	return []unix.SockFilter{jump(unix.BPF_JEQ, call, 0, 1), result(errno)}
}

// install puts this thread under a filter.
func install(program []unix.SockFilter, flags uintptr) (int, error) {
	prog := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	fd, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&prog)))
	if errno != 0 {
		return -1, fmt.Errorf("seccomp filter: %w", errno)
	}
	return int(fd), nil
}

// answerLandlock has the kernel say that it has a version of Landlock's ABI: another process, which lives for as long as this one and what it
// starts, responds in its place.
func answerLandlock(version int64) error {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	far := os.NewFile(uintptr(ends[1]), "responder")
	p, err := os.StartProcess("/proc/self/exe", []string{responder, fmt.Sprint(version)}, &os.ProcAttr{
		Env: os.Environ(), Files: []*os.File{far, os.Stdout, os.Stderr}, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return err
	}
	_, _ = p, far.Close()
	fd, err := install([]unix.SockFilter{
		load(0), jump(unix.BPF_JEQ, unix.SYS_LANDLOCK_CREATE_RULESET, 0, 2),
		load(16), jump(unix.BPF_JEQ, 0, 1, 0), // a question about the version has no attributes
		end(unix.SECCOMP_RET_ALLOW), end(unix.SECCOMP_RET_USER_NOTIF),
	}, unix.SECCOMP_FILTER_FLAG_NEW_LISTENER)
	if err != nil {
		return err
	}
	if err := unix.Sendmsg(ends[0], []byte{0}, unix.UnixRights(fd), nil, 0); err != nil {
		return err
	}
	return errors.Join(unix.Close(fd), unix.Close(ends[0]))
}

// responder is the name of the process that responds.
const responder = "landlock-responder"

// respond plays the kernel for those whose listener comes on standard input.
func respond(version int64) error {
	rights := make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := unix.Recvmsg(0, make([]byte, 1), rights, 0)
	if err != nil {
		return err
	}
	messages, err := unix.ParseSocketControlMessage(rights[:n])
	if err != nil || len(messages) != 1 {
		return fmt.Errorf("%d messages: %w", len(messages), err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		return err
	}
	listener := fds[0]
	for {
		poll := []unix.PollFd{{Fd: int32(listener), Events: unix.POLLIN}}
		if _, err := unix.Poll(poll, -1); err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
		if poll[0].Revents&unix.POLLHUP != 0 {
			return nil // nobody is under the filter any more
		}
		// struct seccomp_notif: id, pid, flags, data; struct seccomp_notif_resp: id, val, error, flags.
		var request [80]byte
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(listener), unix.SECCOMP_IOCTL_NOTIF_RECV, uintptr(unsafe.Pointer(&request))); errno != 0 {
			continue // it has ended meanwhile
		}
		response := struct {
			id, val      int64
			err, nothing int32
		}{id: *(*int64)(unsafe.Pointer(&request)), val: version}
		_, _, _ = unix.Syscall(unix.SYS_IOCTL, uintptr(listener), unix.SECCOMP_IOCTL_NOTIF_SEND, uintptr(unsafe.Pointer(&response)))
	}
}
