package seccomp

import (
	"encoding/binary"
	"strings"
	"testing"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// machine executes a program as the kernel does. The words of what it loads are of the other endianness, as in packets.
func machine(t *testing.T, o Options) func(arch, call uint32, args ...uint64) uint32 {
	t.Helper()
	program, err := Filter(o)
	if err != nil {
		t.Fatal(err)
	}
	var raw []bpf.Instruction
	for _, i := range program {
		raw = append(raw, bpf.RawInstruction{Op: i.Code, Jt: i.Jt, Jf: i.Jf, K: i.K}.Disassemble())
	}
	vm, err := bpf.NewVM(raw)
	if err != nil {
		t.Fatal(err)
	}
	return func(arch, call uint32, args ...uint64) uint32 {
		data := make([]byte, offsetArgs+6*8)
		binary.BigEndian.PutUint32(data[offsetCall:], call)
		binary.BigEndian.PutUint32(data[offsetArch:], arch)
		for i, arg := range args {
			binary.BigEndian.PutUint32(data[argument(i):], uint32(arg))
			binary.BigEndian.PutUint32(data[argument(i)+4:], uint32(arg>>32))
		}
		result, err := vm.Run(data)
		if err != nil {
			t.Fatal(err)
		}
		return uint32(result)
	}
}

func everyOption() []Options {
	var all []Options
	for i := range 16 {
		all = append(all, Options{Internet: i&1 > 0, SharedFiles: i&2 > 0, Truncate: i&4 > 0, SharedProcesses: i&8 > 0})
	}
	return all
}

func numbersByName() map[string]string {
	all := map[string]string{}
	for line := range strings.Lines(numbers) {
		name, number, _ := strings.Cut(strings.TrimSpace(line), " ")
		all[number] = name
	}
	return all
}

// TestFilter compares the program with the rules for every number.
func TestFilter(t *testing.T) {
	t.Parallel()
	verdicts := map[string]verdict{}
	for _, r := range rules() {
		for _, name := range r.names() {
			verdicts[name] = r.verdict
		}
	}
	want := map[verdict]uint32{allowed: returnAllow, refused: returnEPERM, absent: returnENOSYS}
	for _, o := range everyOption() {
		run := machine(t, o)
		names := map[uint32]string{}
		for number, name := range numbersByName() {
			names[atoi(t, number)] = name
		}
		for call := range uint32(2000) {
			name, exists := names[call]
			got := run(auditArch, call)
			switch v := verdicts[name]; {
			case !exists && got != returnENOSYS:
				t.Errorf("%+v: call %d, which there is not: %#x", o, call, got)
			case exists && v != checked && got != want[v]:
				t.Errorf("%+v: %s: %#x, want %s", o, name, got, v)
			}
		}
		for _, call := range []uint32{1 << 30, 1<<30 + 1, 1<<32 - 1} { // those of x32 begin with the first
			if got := run(auditArch, call); got != returnENOSYS {
				t.Errorf("%+v: call %#x: %#x", o, call, got)
			}
		}
		if got := run(auditArch^1, unix.SYS_READ); got != returnKill {
			t.Errorf("another architecture: %#x", got)
		}
	}
}

func atoi(t *testing.T, text string) uint32 {
	t.Helper()
	n := uint32(0)
	for _, c := range text {
		n = 10*n + uint32(c-'0')
	}
	return n
}

func TestArguments(t *testing.T) {
	t.Parallel()
	const (
		path   = 0xdeadbeef00000000 // the address of a path
		tmpdir = unix.O_TMPFILE | unix.O_RDWR
	)
	apart := Options{Internet: true, Truncate: true}
	alone := Options{Truncate: true}
	shared := Options{SharedFiles: true, SharedProcesses: true}
	for _, tc := range []struct {
		options Options
		call    uint32
		args    []uint64
		want    uint32
	}{
		{apart, unix.SYS_CLONE, []uint64{unix.CLONE_THREAD}, returnAllow},
		{apart, unix.SYS_CLONE, []uint64{unix.CLONE_NEWUSER | uint64(unix.SIGCHLD)}, returnEPERM},
		{apart, unix.SYS_CLONE, []uint64{unix.CLONE_NEWNET}, returnEPERM},

		{apart, unix.SYS_SOCKET, []uint64{unix.AF_UNIX, unix.SOCK_STREAM | unix.SOCK_CLOEXEC, 0}, returnAllow},
		{apart, unix.SYS_SOCKET, []uint64{unix.AF_INET, unix.SOCK_STREAM, 0}, returnAllow},
		{apart, unix.SYS_SOCKET, []uint64{unix.AF_INET6, unix.SOCK_DGRAM, 0}, returnAllow},
		{alone, unix.SYS_SOCKET, []uint64{unix.AF_INET, unix.SOCK_STREAM, 0}, returnEAFNOSUPPORT},
		{alone, unix.SYS_SOCKET, []uint64{unix.AF_INET6, unix.SOCK_STREAM, 0}, returnEAFNOSUPPORT},
		{apart, unix.SYS_SOCKET, []uint64{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE}, returnAllow},
		{apart, unix.SYS_SOCKET, []uint64{unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_SOCK_DIAG}, returnEPERM},
		{apart, unix.SYS_SOCKET, []uint64{unix.AF_VSOCK, unix.SOCK_STREAM, 0}, returnEAFNOSUPPORT},
		{apart, unix.SYS_SOCKET, []uint64{unix.AF_ALG, unix.SOCK_SEQPACKET, 0}, returnEAFNOSUPPORT},
		{apart, unix.SYS_SOCKET, []uint64{unix.AF_PACKET, unix.SOCK_RAW, 0}, returnEAFNOSUPPORT},
		{apart, unix.SYS_SOCKETPAIR, []uint64{unix.AF_UNIX}, returnAllow},
		{apart, unix.SYS_SOCKETPAIR, []uint64{unix.AF_TIPC}, returnEAFNOSUPPORT},

		{apart, unix.SYS_FCHMODAT, []uint64{0, path, 0o755}, returnAllow},
		{apart, unix.SYS_FCHMODAT, []uint64{0, path, 0o4755}, returnEPERM},
		{apart, unix.SYS_FCHMODAT2, []uint64{0, path, 0o2755, 0}, returnEPERM},
		{apart, unix.SYS_FCHMOD, []uint64{5, 0o6755}, returnEPERM},
		{shared, unix.SYS_FCHMOD, []uint64{5, 0o644}, returnEPERM},
		{shared, unix.SYS_FCHMODAT, []uint64{0, path, 0o644}, returnEPERM},
		{apart, unix.SYS_MKNODAT, []uint64{0, path, unix.S_IFREG | 0o4755}, returnEPERM},
		{shared, unix.SYS_MKNODAT, []uint64{0, path, unix.S_IFREG | 0o644}, returnAllow},

		{apart, unix.SYS_OPENAT, []uint64{0, path, unix.O_RDONLY, 0o4755}, returnAllow}, // what is no mode
		{apart, unix.SYS_OPENAT, []uint64{0, path, unix.O_CREAT | unix.O_WRONLY, 0o755}, returnAllow},
		{apart, unix.SYS_OPENAT, []uint64{0, path, unix.O_CREAT | unix.O_WRONLY, 0o4755}, returnEPERM},
		{apart, unix.SYS_OPENAT, []uint64{0, path, tmpdir, 0o2755}, returnEPERM},
		{apart, unix.SYS_OPENAT, []uint64{0, path, unix.O_DIRECTORY, 0o2755}, returnAllow},

		{apart, unix.SYS_UTIMENSAT, []uint64{0, path}, returnAllow},
		{shared, unix.SYS_UTIMENSAT, []uint64{0, path}, returnEPERM},
		{shared, unix.SYS_FCHOWN, []uint64{5, 0, 0}, returnEPERM},
		{shared, unix.SYS_FSETXATTR, []uint64{5, path}, returnEPERM},
		{apart, unix.SYS_FSETXATTR, []uint64{5, path}, returnAllow},
		{shared, unix.SYS_TRUNCATE, []uint64{path, 0}, returnEPERM},
		{Options{SharedFiles: true, Truncate: true}, unix.SYS_TRUNCATE, []uint64{path, 0}, returnAllow},
		{shared, unix.SYS_FTRUNCATE, []uint64{5, 0}, returnAllow},

		{apart, unix.SYS_FCNTL, []uint64{3, unix.F_SETFL, 0}, returnAllow},
		{apart, unix.SYS_FCNTL, []uint64{3, unix.F_NOTIFY, 1}, returnEPERM},
		{apart, unix.SYS_FCNTL, []uint64{3, unix.F_SETLEASE, 1}, returnEPERM},
		{apart, unix.SYS_IOCTL, []uint64{0, unix.TCGETS}, returnAllow},
		{apart, unix.SYS_IOCTL, []uint64{0, unix.TIOCSTI}, returnEPERM},
		{apart, unix.SYS_IOCTL, []uint64{0, 1<<32 | unix.TIOCSTI}, returnEPERM}, // the kernel looks at the lower half
		{apart, unix.SYS_IOCTL, []uint64{5, unix.FS_IOC_SETFLAGS}, returnAllow},
		{shared, unix.SYS_IOCTL, []uint64{5, unix.FS_IOC_SETFLAGS}, returnEPERM},

		{apart, unix.SYS_PRLIMIT64, []uint64{1}, returnAllow},
		{shared, unix.SYS_PRLIMIT64, []uint64{0}, returnAllow},
		{shared, unix.SYS_PRLIMIT64, []uint64{1}, returnEPERM},
		{apart, unix.SYS_PRLIMIT64, []uint64{0, unix.RLIMIT_NOFILE, path}, returnAllow},
		{apart, unix.SYS_PRLIMIT64, []uint64{0, unix.RLIMIT_CORE, 0}, returnAllow},
		{apart, unix.SYS_PRLIMIT64, []uint64{0, unix.RLIMIT_CORE, path}, returnEPERM},
		{apart, unix.SYS_PRLIMIT64, []uint64{0, unix.RLIMIT_CORE, 8}, returnEPERM},
		{shared, unix.SYS_PRLIMIT64, []uint64{1, unix.RLIMIT_CORE, 0}, returnEPERM},
		{apart, unix.SYS_SETRLIMIT, []uint64{unix.RLIMIT_CORE, path}, returnEPERM},
		{apart, unix.SYS_SETRLIMIT, []uint64{unix.RLIMIT_NOFILE, path}, returnAllow},
		{apart, unix.SYS_PRCTL, []uint64{unix.PR_SET_NAME, path}, returnAllow},
		{apart, unix.SYS_PRCTL, []uint64{unix.PR_SET_SECCOMP, 2, path}, returnEINVAL},
		{apart, unix.SYS_PRCTL, []uint64{unix.PR_SET_MEMORY_MERGE, 1}, returnEINVAL},
		{apart, unix.SYS_PRCTL, []uint64{unix.PR_SCHED_CORE, 1}, returnEINVAL},
		{apart, unix.SYS_SECCOMP, []uint64{unix.SECCOMP_SET_MODE_FILTER, 0, path}, returnEINVAL},
		{apart, unix.SYS_SECCOMP, []uint64{unix.SECCOMP_GET_ACTION_AVAIL, 0, path}, returnAllow},
		{shared, unix.SYS_SETPRIORITY, []uint64{0, 1}, returnEPERM},
		{shared, unix.SYS_SETPRIORITY, []uint64{0, 0}, returnAllow},
		{shared, unix.SYS_SCHED_SETATTR, []uint64{1}, returnEPERM},
	} {
		if got := machine(t, tc.options)(auditArch, tc.call, tc.args...); got != tc.want {
			t.Errorf("%+v: call %d %#x: %#x, want %#x", tc.options, tc.call, tc.args, got, tc.want)
		}
	}
}
