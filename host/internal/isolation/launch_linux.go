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

	"golang.org/x/sys/unix"
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
	if l.Namespaces {
		if err := l.enter(); err != nil {
			return err
		}
	}
	if err := l.limits(); err != nil {
		return err
	}
	if l.Landlock > 0 {
		if err := applyLandlock(l); err != nil {
			return err
		}
	}
	if l.Namespaces {
		if err := dropCapabilities(); err != nil {
			return err
		}
	}
	if l.Filter {
		if err := applyFilter(); err != nil {
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

// enter takes the place in the namespaces: the user, the view, the end with the host.
func (l *launch) enter() error {
	if l.MapSelf {
		if err := mapSelf(l.UID, l.GID); err != nil {
			return err
		}
	}
	if err := enterView(l); err != nil {
		return err
	}
	for _, dir := range l.Dirs {
		if os.Chdir(dir) == nil {
			break
		}
	}
	// To become another user has cleared it.
	return os.NewSyscallError("prctl", unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0))
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

// become changes the user of this thread, which keeps its capabilities in the namespace.
func become(id int) error {
	if id == 0 {
		return nil
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, 0, 0, 0); errno != 0 {
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
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		return fmt.Errorf("no core dumps: %w", err)
	}
	if n := l.OpenFiles; n > 0 {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: n, Max: n}); err != nil {
			return fmt.Errorf("limit of open files: %w", err)
		}
	}
	return nil
}

// dropCapabilities gives up those in the user namespace, for good.
func dropCapabilities() error {
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("drop capabilities: %w", err)
	}
	for c := uintptr(0); ; c++ {
		err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0)
		if errors.Is(err, unix.EINVAL) {
			break // there is none of this number
		}
		if err != nil {
			return fmt.Errorf("drop capabilities: %w", err)
		}
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
