package seccomp

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Offsets in struct seccomp_data.
const (
	offsetCall = 0
	offsetArch = 4
	offsetArgs = 16 // of 8 bytes each; their lower halves come first: all systems here are little-endian
)

// Results of the filter.
const (
	returnAllow        = uint32(unix.SECCOMP_RET_ALLOW)
	returnKill         = uint32(unix.SECCOMP_RET_KILL_PROCESS)
	returnEPERM        = uint32(unix.SECCOMP_RET_ERRNO) | uint32(unix.EPERM)
	returnENOSYS       = uint32(unix.SECCOMP_RET_ERRNO) | uint32(unix.ENOSYS)
	returnEINVAL       = uint32(unix.SECCOMP_RET_ERRNO) | uint32(unix.EINVAL)
	returnEAFNOSUPPORT = uint32(unix.SECCOMP_RET_ERRNO) | uint32(unix.EAFNOSUPPORT)
)

const (
	newNamespaces = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET |
		unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWTIME
	setID = unix.S_ISUID | unix.S_ISGID
	// newFile are the flags of open with which it makes a file: O_CREAT, and the bit of O_TMPFILE that is not O_DIRECTORY.
	newFile = unix.O_CREAT | 0o20000000
)

// Commands of ioctl that are refused: always, and where files are shared.
func terminalCommands() []uint32 { return []uint32{unix.TIOCSTI, unix.TIOCLINUX} }

func fileCommands() []uint32 {
	const setVersion, setFSXAttr, enableVerity = 0x40087602, 0x401c5820, 0x40806685
	return []uint32{unix.FS_IOC_SETFLAGS, setVersion, setFSXAttr, enableVerity, unix.FS_IOC_SET_ENCRYPTION_POLICY}
}

// processOptions are those of prctl that are allowed: about the process itself, and without a price for others.
func processOptions() []uint32 {
	return []uint32{
		unix.PR_SET_PDEATHSIG, unix.PR_GET_PDEATHSIG, unix.PR_GET_DUMPABLE, unix.PR_SET_DUMPABLE, unix.PR_SET_PTRACER,
		unix.PR_SET_NAME, unix.PR_GET_NAME, unix.PR_SET_VMA, unix.PR_GET_TID_ADDRESS, unix.PR_GET_AUXV,
		unix.PR_GET_TIMERSLACK, unix.PR_SET_TIMERSLACK, unix.PR_GET_TIMING, unix.PR_GET_TSC, unix.PR_SET_TSC,
		unix.PR_GET_CHILD_SUBREAPER, unix.PR_SET_CHILD_SUBREAPER, unix.PR_GET_NO_NEW_PRIVS, unix.PR_SET_NO_NEW_PRIVS,
		unix.PR_GET_KEEPCAPS, unix.PR_SET_KEEPCAPS, unix.PR_GET_SECUREBITS,
		unix.PR_CAPBSET_READ, unix.PR_CAPBSET_DROP, unix.PR_CAP_AMBIENT,
		unix.PR_GET_SECCOMP, unix.PR_GET_THP_DISABLE, unix.PR_SET_THP_DISABLE, unix.PR_GET_MDWE, unix.PR_SET_MDWE,
		unix.PR_GET_SPECULATION_CTRL, unix.PR_SET_SPECULATION_CTRL, unix.PR_SET_SYSCALL_USER_DISPATCH,
		unix.PR_SVE_GET_VL, unix.PR_SVE_SET_VL, unix.PR_SME_GET_VL, unix.PR_SME_SET_VL, unix.PR_PAC_RESET_KEYS,
		unix.PR_PAC_GET_ENABLED_KEYS, unix.PR_PAC_SET_ENABLED_KEYS,
		unix.PR_GET_TAGGED_ADDR_CTRL, unix.PR_SET_TAGGED_ADDR_CTRL,
		unix.PR_GET_SHADOW_STACK_STATUS, unix.PR_SET_SHADOW_STACK_STATUS, unix.PR_LOCK_SHADOW_STACK_STATUS,
	}
}

// Filter returns the program for a process.
func Filter(o Options) ([]unix.SockFilter, error) {
	segments, err := segmentsOf(numbers, o)
	if err != nil {
		return nil, err
	}
	program := []unix.SockFilter{
		load(offsetArch), jump(unix.BPF_JEQ, auditArch, 1, 0), end(returnKill),
		load(offsetCall),
	}
	// The segments are in the order of their numbers, without gaps. A block for arguments may be too
	// far for a conditional jump.
	type branch struct{ at, block int }
	var branches []branch
	var blocks [][]unix.SockFilter
	for _, s := range segments {
		program = append(program, jump(unix.BPF_JGT, s.last, 1, 0))
		if len(s.block) == 1 {
			program = append(program, s.block[0])
			continue
		}
		branches = append(branches, branch{len(program), len(blocks)})
		blocks = append(blocks, s.block)
		program = append(program, unix.SockFilter{})
	}
	program = append(program, end(returnENOSYS))
	for _, b := range branches {
		program[b.at] = unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JA, K: uint32(len(program) - b.at - 1)}
		program = append(program, blocks[b.block]...)
	}
	return program, nil
}

// segment is what is done with all calls up to a number that are in no segment before it.
type segment struct {
	last  uint32
	block []unix.SockFilter
}

// segmentsOf returns the segments for a list of names and numbers.
func segmentsOf(list string, o Options) ([]segment, error) {
	verdicts := map[string]verdict{}
	for _, r := range rules() {
		for _, name := range r.names() {
			verdicts[name] = r.verdict
		}
	}
	type call struct {
		name   string
		number uint32
	}
	var calls []call
	for line := range strings.Lines(list) {
		name, text, _ := strings.Cut(strings.TrimSpace(line), " ")
		number, err := strconv.ParseUint(text, 10, 31)
		if err != nil {
			return nil, fmt.Errorf("number of the system call %s: %w", name, err)
		}
		if _, ok := verdicts[name]; !ok {
			return nil, fmt.Errorf("no rule for the system call %s", name)
		}
		calls = append(calls, call{name, uint32(number)})
	}
	slices.SortFunc(calls, func(a, b call) int { return cmp.Compare(a.number, b.number) })
	var segments []segment
	add := func(last uint32, block []unix.SockFilter) {
		if n := len(segments); n > 0 && slices.Equal(segments[n-1].block, block) {
			segments[n-1].last = last
			return
		}
		segments = append(segments, segment{last, block})
	}
	next := uint32(0)
	for _, c := range calls {
		if c.number > next {
			add(c.number-1, only(returnENOSYS)) // numbers that no call has
		}
		add(c.number, block(c.name, verdicts[c.name], o))
		next = c.number + 1
	}
	return segments, nil
}

// block returns what decides about one call.
func block(name string, v verdict, o Options) []unix.SockFilter {
	switch v {
	case allowed:
		return only(returnAllow)
	case refused:
		return only(returnEPERM)
	case absent:
		return only(returnENOSYS)
	}
	switch name {
	case "clone":
		return refuseBits(0, newNamespaces)
	case "socket":
		return sockets(o)
	case "socketpair":
		return allowOnly(returnEAFNOSUPPORT, 0, unix.AF_UNIX)
	case "prctl":
		return allowOnly(returnEINVAL, 0, processOptions()...)
	case "seccomp":
		return allowOnly(returnEINVAL, 0,
			unix.SECCOMP_SET_MODE_STRICT, unix.SECCOMP_GET_ACTION_AVAIL, unix.SECCOMP_GET_NOTIF_SIZES)
	case "setrlimit":
		return refuseValues(0, unix.RLIMIT_CORE)
	case "creat", "chmod", "fchmod", "mknod":
		return o.shared(name == "chmod" || name == "fchmod", refuseBits(1, setID))
	case "fchmodat", "fchmodat2", "mknodat":
		return o.shared(name != "mknodat", refuseBits(2, setID))
	case "open":
		return newFiles(1)
	case "openat":
		return newFiles(2)
	case "truncate":
		return o.shared(!o.Truncate, only(returnAllow))
	case "fcntl":
		return refuseValues(1, unix.F_NOTIFY, unix.F_SETLEASE)
	case "ioctl":
		commands := terminalCommands()
		if o.SharedFiles {
			commands = append(commands, fileCommands()...)
		}
		return refuseValues(1, commands...)
	case "prlimit64":
		return o.limits()
	case "sched_setaffinity", "sched_setscheduler", "sched_setparam", "sched_setattr":
		return o.self(0)
	case "setpriority", "ioprio_set":
		return o.self(1)
	}
	return o.shared(true, only(returnAllow)) // owners, times, attributes
}

// shared refuses a call that changes files, if it does, where they are shared.
func (o Options) shared(changes bool, otherwise []unix.SockFilter) []unix.SockFilter {
	if o.SharedFiles && changes {
		return only(returnEPERM)
	}
	return otherwise
}

// self allows a call whose argument is a process only for 0, which is the caller, where others are in reach.
func (o Options) self(arg int) []unix.SockFilter {
	if o.SharedProcesses {
		return allowOnly(returnEPERM, arg, 0)
	}
	return only(returnAllow)
}

// limits allows prlimit64 as self does, and that of the core with a pointer to what is to be set for no process.
func (o Options) limits() []unix.SockFilter {
	rest := o.self(0)
	return append([]unix.SockFilter{
		load(argument(1)), jump(unix.BPF_JEQ, unix.RLIMIT_CORE, 0, 5),
		load(argument(2)), jump(unix.BPF_JEQ, 0, 0, 2),
		load(argument(2) + 4), jump(unix.BPF_JEQ, 0, 1, 0), end(returnEPERM),
	}, rest...)
}

// sockets allows those of families that do not leave the process' namespaces.
func sockets(o Options) []unix.SockFilter {
	families := []uint32{unix.AF_UNIX}
	if o.Internet {
		families = append(families, unix.AF_INET, unix.AF_INET6)
	}
	program := []unix.SockFilter{load(argument(0))}
	for _, family := range families {
		program = append(program, jump(unix.BPF_JEQ, family, 0, 1), end(returnAllow))
	}
	return append(program,
		jump(unix.BPF_JEQ, unix.AF_NETLINK, 1, 0), end(returnEAFNOSUPPORT),
		load(argument(2)), jump(unix.BPF_JEQ, unix.NETLINK_ROUTE, 1, 0), end(returnEPERM),
		end(returnAllow))
}

// newFiles refuses to make a file that executes as its owner. The mode is the argument after the flags.
func newFiles(flags int) []unix.SockFilter {
	return []unix.SockFilter{
		load(argument(flags)), jump(unix.BPF_JSET, newFile, 1, 0), end(returnAllow),
		load(argument(flags + 1)), jump(unix.BPF_JSET, setID, 0, 1), end(returnEPERM),
		end(returnAllow),
	}
}

// refuseBits refuses a call with one of the bits in an argument.
func refuseBits(arg int, bits uint32) []unix.SockFilter {
	return []unix.SockFilter{load(argument(arg)), jump(unix.BPF_JSET, bits, 0, 1), end(returnEPERM), end(returnAllow)}
}

// refuseValues refuses a call with one of the values as an argument.
func refuseValues(arg int, values ...uint32) []unix.SockFilter {
	program := []unix.SockFilter{load(argument(arg))}
	for _, v := range values {
		program = append(program, jump(unix.BPF_JEQ, v, 0, 1), end(returnEPERM))
	}
	return append(program, end(returnAllow))
}

// allowOnly allows a call with some values of an argument.
func allowOnly(otherwise uint32, arg int, values ...uint32) []unix.SockFilter {
	program := []unix.SockFilter{load(argument(arg))}
	for _, v := range values {
		program = append(program, jump(unix.BPF_JEQ, v, 0, 1), end(returnAllow))
	}
	return append(program, end(otherwise))
}

func argument(n int) uint32 { return offsetArgs + 8*uint32(n) }

func only(result uint32) []unix.SockFilter { return []unix.SockFilter{end(result)} }

func load(offset uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
}

func end(result uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: result}
}

func jump(op uint16, k uint32, ifTrue, ifFalse uint8) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_K | op, K: k, Jt: ifTrue, Jf: ifFalse}
}
