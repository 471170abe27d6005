package isolation

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"strconv"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/catena-dev/catena/host/internal/isolation/seccomp"
)

// Dispatch makes this process the one between host and plugin, if it was started as that; it
// does not return then. Every program that starts isolated stages has to call it first.
func Dispatch() {
	if len(os.Args) != 3 || os.Args[1] != argument {
		return
	}
	var l launch
	if err := json.Unmarshal([]byte(os.Args[2]), &l); err != nil {
		fmt.Fprintf(os.Stderr, "%s is for the host alone: %v\n", argument, err)
		os.Exit(2)
	}
	// All that follows is of this thread, and of the program that it executes.
	runtime.LockOSThread()
	if err := l.run(); err != nil {
		l.report(err)
		os.Exit(125)
	}
	os.Exit(0)
}

// report tells the host what has failed.
func (l *launch) report(err error) {
	var errno syscall.Errno
	errors.As(err, &errno)
	_, _ = unix.Write(l.Status, []byte(strconv.Itoa(int(errno))+" "+err.Error()))
}

func (l *launch) run() error {
	// What the plugin inherits are the descriptors below the status.
	if err := unix.CloseRange(uint(l.Status), math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		unix.CloseOnExec(l.Status)
	}
	binary := fmt.Sprintf("/proc/self/fd/%d", l.Inherited)
	if l.Namespaces {
		binary = l.Binary // as it is in the view
		if err := l.enter(); err != nil {
			return err
		}
	}
	if err := errors.Join(reopen(0, os.DevNull), reopen(l.Inherited, binary)); err != nil {
		return err
	}
	if err := l.limits(); err != nil {
		return err
	}
	if l.Landlock > 0 {
		if err := applyLandlock(l); err != nil {
			return err
		}
	}
	if err := l.giveUp(); err != nil {
		return err
	}
	if l.Filter != nil {
		if err := seccomp.Apply(*l.Filter); err != nil {
			return err
		}
	}
	if _, err := unix.Write(l.Status, []byte(isolated)); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	if l.Path == "" {
		return nil
	}
	return execute(l.Path, l.Argv)
}

// enter takes the place in the namespaces: the user, and the view.
func (l *launch) enter() error {
	if l.MapSelf {
		if err := mapSelf(l.UID, l.GID); err != nil {
			return err
		}
	}
	if err := enterView(l); err != nil {
		return err
	}
	l.enterDir()
	return nil
}

func (l *launch) enterDir() {
	for _, dir := range l.Dirs {
		if os.Chdir(dir) == nil {
			return
		}
	}
}

// giveUp gives up all capabilities and, where that has not been done in the namespaces, the user.
func (l *launch) giveUp() error {
	if err := dropBounding(); err != nil && l.Namespaces {
		return err // elsewhere no new privileges are enough, and not every user is allowed to
	}
	if !l.Namespaces && l.Become != 0 {
		if err := become(l.Become, l.Group); err != nil {
			return err
		}
		l.enterDir()
	}
	if err := dropCapabilities(); err != nil {
		return err
	}
	// To become another user has cleared it.
	return os.NewSyscallError("prctl", unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0))
}

// reopen replaces a descriptor that was inherited by one of the same file that is opened by its path: flags and offset of the other one are
// the host's, too, and it leads to a mount of the host, where the mode of the file could be changed.
func reopen(inherited int, path string) error {
	if inherited < 0 {
		return nil
	}
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s again: %w", path, err)
	}
	defer unix.Close(fd)
	var was, is unix.Stat_t
	if err := errors.Join(unix.Fstat(inherited, &was), unix.Fstat(fd, &is)); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if was.Dev != is.Dev || was.Ino != is.Ino {
		return fmt.Errorf("%s has been replaced by another file while it was started", path)
	}
	return os.NewSyscallError("dup3", unix.Dup3(fd, inherited, 0))
}

// mapSelf gives the user and the group of this process the same number in its namespace.
func mapSelf(uid, gid int) error {
	for _, m := range []struct{ file, text string }{
		{"setgroups", "deny"},
		{"uid_map", fmt.Sprintf("%d %d 1", uid, uid)},
		{"gid_map", fmt.Sprintf("%d %d 1", gid, gid)},
	} {
		if err := os.WriteFile("/proc/self/"+m.file, []byte(m.text), 0); err != nil {
			return fmt.Errorf("user namespace: %w", err)
		}
	}
	return nil
}

// become changes the user of this thread, who is a member of the groups besides. In a user namespace the thread
// keeps its capabilities there.
func become(id int, groups ...int) error {
	if id == 0 {
		return nil
	}
	list := []uint32{}
	for _, g := range groups {
		if g != 0 {
			list = append(list, uint32(g))
		}
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(list)),
		uintptr(unsafe.Pointer(unsafe.SliceData(list))), 0); errno != 0 {
		return os.NewSyscallError("setgroups", errno)
	}
	for _, call := range []struct {
		name   string
		number uintptr
	}{{"setresgid", unix.SYS_SETRESGID}, {"setresuid", unix.SYS_SETRESUID}} {
		if _, _, errno := unix.RawSyscall(call.number, uintptr(id), uintptr(id), uintptr(id)); errno != 0 {
			return os.NewSyscallError(call.name, errno)
		}
	}
	return nil
}

// limits sets what holds for every isolated process.
func (l *launch) limits() error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no new privileges: %w", err)
	}
	// With 0 there is no file, but where core_pattern is a pipe the program at its end is started all the same:
	// core(5).
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{Cur: 1, Max: 1}); err != nil {
		return fmt.Errorf("no core dumps: %w", err)
	}
	for _, limit := range []struct {
		name     string
		resource int
		max      uint64
	}{{"open files", unix.RLIMIT_NOFILE, l.OpenFiles}, {"processes", unix.RLIMIT_NPROC, l.Processes}} {
		if err := lower(limit.resource, limit.max); err != nil {
			return fmt.Errorf("limit of %s: %w", limit.name, err)
		}
	}
	return nil
}

// lower sets a limit unless it is lower already, or max is 0.
func lower(resource int, max uint64) error {
	var now unix.Rlimit
	if err := unix.Getrlimit(resource, &now); err != nil {
		return err
	}
	if max = min(max, now.Max); max == 0 {
		return nil
	}
	return unix.Setrlimit(resource, &unix.Rlimit{Cur: max, Max: max})
}

// dropBounding keeps what is executed from getting capabilities.
func dropBounding() error {
	for c := uintptr(0); ; c++ {
		err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0)
		if errors.Is(err, unix.EINVAL) {
			return nil // there is no system call of this number
		}
		if err != nil {
			return fmt.Errorf("drop capabilities: %w", err)
		}
	}
}

// dropCapabilities gives up those that this thread has, for good.
func dropCapabilities() error {
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("drop capabilities: %w", err)
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if err := unix.Capset(&header, &none[0]); err != nil {
		return fmt.Errorf("drop capabilities: %w", err)
	}
	return nil
}

// execute replaces this process by the plugin. It retries for a second while the file is open for
// writing: a child that an unrelated writer forks holds it open until it executes its own program.
func execute(path string, argv []string) error {
	for attempt := 0; ; attempt++ {
		err := unix.Exec(path, argv, os.Environ())
		if !errors.Is(err, unix.ETXTBSY) || attempt == 20 {
			return fmt.Errorf("execute: %w", err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}
