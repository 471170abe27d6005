package isolation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// argument is the first argument of the host's binary that makes it the process between host
// and plugin.
const argument = "launch-isolated-stage"

// isolated is what that process writes when all means are in effect. The end of what it writes is
// that it executes the plugin; an error may come in between.
const isolated = "isolated\n"

// launch is what that process is told.
type launch struct {
	// Status is the descriptor to which it writes what has failed.
	Status int `json:"status"`
	// Path and Argv are what it executes. It only tries all means if there is none.
	Path string   `json:"path"`
	Argv []string `json:"argv"`
	// Namespaces says that it has namespaces of its own, which need a view.
	Namespaces bool    `json:"namespaces"`
	View       []entry `json:"view"`
	// Dirs are for the working directory: the first one that exists.
	Dirs []string `json:"dirs"`
	// MapSelf says that it has to map its own user, of this id in both namespaces.
	MapSelf bool `json:"mapSelf"`
	// Become is the user in its namespace that it becomes, 0 if none.
	Become int `json:"become"`
	UID    int `json:"uid"`
	GID    int `json:"gid"`
	// Filter and Landlock say what else is applied.
	Filter   bool `json:"filter"`
	Landlock int  `json:"landlock"`
	Network  bool `json:"network"`
	// OpenFiles is how many files may be open, 0 if that stays as it is.
	OpenFiles uint64 `json:"openFiles,omitempty"`
}

// Detect finds out what this machine can do, by doing it with a process that ends at once.
func Detect(ctx context.Context) *Machine {
	m := &Machine{Root: os.Geteuid() == 0, Filter: filterAvailable(), Landlock: landlockVersion()}
	m.Namespaces = m.try(ctx)
	return m
}

// try runs the launch step, without a plugin.
func (m *Machine) try(ctx context.Context) error {
	l := &Launcher{plan: plan{namespaces: true, filter: m.Filter == nil, landlock: m.Landlock}, view: sortView(system())}
	if m.Root {
		l.uid = firstUser
	}
	attr := &os.ProcAttr{Env: []string{}, Files: []*os.File{nil, nil, nil}, Sys: &syscall.SysProcAttr{}}
	path, argv, err := l.Wrap("", nil, attr)
	if err != nil {
		return err
	}
	p, err := os.StartProcess(path, argv, attr)
	if err != nil {
		l.Close()
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = p.Kill() })()
	err = l.Wait()
	state, waitErr := p.Wait()
	switch {
	case err != nil:
		return err
	case waitErr != nil:
		return waitErr
	case !state.Success():
		return fmt.Errorf("the attempt ended with %s", state)
	}
	return nil
}

// Launcher starts one process of a stage. Call Wrap, start what it returns, then Wait;
// or Close if nothing was started.
type Launcher struct {
	plan
	missing []error
	view    []entry
	dirs    []string
	dir     string // of the process alone
	net     bool
	files   uint64   // that may be open
	read    *os.File // of the status
	write   *os.File
}

// Prepare decides what isolates a process, and prepares its files. env is the environment that
// it will have. It returns nil if nothing is to be done.
func (m *Machine) Prepare(p Process, env []string) (*Launcher, error) {
	if p.Mode == Off {
		return nil, reclaim(p.DataDir)
	}
	if m == nil {
		m = &Machine{Namespaces: errors.New("were not looked for"), Filter: errors.New("was not looked for")}
	}
	pl, missing := m.plan(p, userOf(p), p.ownUser())
	if p.Mode == Required && len(missing) > 0 {
		return nil, refusal(p.Stage, missing)
	}
	view, err := p.view(env)
	if err != nil {
		return nil, err
	}
	if !pl.namespaces {
		view = exposed(view, p.Binary, p.Hidden)
	}
	l := &Launcher{plan: pl, missing: missing, view: view, dirs: workingDir(p.DataDir), dir: p.Dir, net: p.Network, files: p.OpenFiles}
	return l, errors.Join(l.give(p.DataDir, p.Dir), l.open(p.Sockets))
}

// open lets the process' own user connect to sockets. Their directories keep out all others.
func (l *Launcher) open(sockets []string) error {
	for _, socket := range sockets {
		if l.uid == 0 {
			continue
		}
		if err := os.Chmod(socket, 0o666); err != nil {
			return err
		}
	}
	return nil
}

// Means are the names of what isolates the process.
func (l *Launcher) Means() []string {
	if l == nil {
		return nil
	}
	return l.means
}

// Missing is what the machine lacks to isolate the process by all means.
func (l *Launcher) Missing() []error {
	if l == nil {
		return nil
	}
	return l.missing
}

// CanRead reports whether the process can read a file: nothing that isolates it keeps it from that.
func (l *Launcher) CanRead(path string) bool {
	if l == nil || !l.namespaces && l.landlock == 0 {
		return true
	}
	if l.uid != 0 && othersCan(path, 0o4) != nil {
		return false
	}
	return shows(l.view, path)
}

// UID is the user that the process has outside of its namespace: its own, or that of this process.
func (l *Launcher) UID() int {
	if l == nil || l.uid == 0 {
		return os.Geteuid()
	}
	return l.uid
}

// userOf is the user of a stage, the same in all runs.
func userOf(p Process) int {
	h := fnv.New32a()
	_, _ = io.WriteString(h, p.Stage+"\x00"+p.DataDir)
	return firstUser + int(h.Sum32()%(lastUser-firstUser+1))
}

// ownUser returns why a process cannot have a user of its own: the mode of a file that it needs
// keeps other users out.
func (p Process) ownUser() error {
	errs := []error{othersCan(p.Binary, 0o5), othersCan(filepath.Dir(p.Binary), 0o5)}
	granted, err := p.files()
	if err != nil {
		return err
	}
	for _, f := range granted {
		bits := os.FileMode(0o4)
		if f.write {
			bits |= 0o2
		}
		errs = append(errs, othersCan(f.path, bits))
	}
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// give makes directories the property of the process' own user.
func (l *Launcher) give(dirs ...string) error {
	for _, dir := range dirs {
		if dir == "" || l.uid == 0 {
			continue
		}
		if err := chownAll(dir, l.uid); err != nil {
			return fmt.Errorf("give %s to user %d: %w", dir, l.uid, err)
		}
	}
	return nil
}

// Wrap returns what to start in the place of path and argv, and adds to attr what that needs.
func (l *Launcher) Wrap(path string, argv []string, attr *os.ProcAttr) (string, []string, error) {
	var err error
	if l.read, l.write, err = os.Pipe(); err != nil {
		return "", nil, fmt.Errorf("isolation: %w", err)
	}
	c := launch{
		Status: len(attr.Files), Path: path, Argv: argv,
		Namespaces: l.namespaces, View: l.view, Dirs: l.dirs, UID: os.Geteuid(), GID: os.Getegid(),
		Filter: l.filter, Landlock: l.landlock, Network: l.net, OpenFiles: l.files,
	}
	attr.Files = append(attr.Files, l.write)
	attr.Env = temporary(attr.Env, l.namespaces, l.dir)
	if l.namespaces {
		l.namespace(&c, attr)
	}
	text, err := json.Marshal(c)
	if err != nil {
		return "", nil, err
	}
	name := filepath.Base(path)
	if len(argv) > 0 {
		name = argv[0]
	}
	return "/proc/self/exe", []string{name, argument, string(text)}, nil
}

// namespace asks for the namespaces.
//
// A host that runs as root maps the user of the stage to nobody, the user that everybody
// outside of the namespace is seen as: stages check that the host has the same user as they.
// Any other host has to leave it to the process to map itself, since the files in /proc of what
// it has forked, as its own, belong to root (see HideMemory).
func (l *Launcher) namespace(c *launch, attr *os.ProcAttr) {
	attr.Sys.Cloneflags |= unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS
	if !l.net {
		attr.Sys.Cloneflags |= unix.CLONE_NEWNET
	}
	attr.Sys.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_SETPCAP, unix.CAP_SETUID, unix.CAP_SETGID}
	switch {
	case os.Geteuid() != 0:
		c.MapSelf = true
	case l.uid != 0:
		c.Become = nobody()
		attr.Sys.UidMappings = []syscall.SysProcIDMap{{ContainerID: c.Become, HostID: l.uid, Size: 1}}
		attr.Sys.GidMappings = []syscall.SysProcIDMap{{ContainerID: c.Become, HostID: l.uid, Size: 1}}
		attr.Sys.GidMappingsEnableSetgroups = true
	default:
		attr.Sys.UidMappings = []syscall.SysProcIDMap{{HostID: 0, Size: 1}}
		attr.Sys.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}}
	}
}

// nobody is the user that users without a mapping are seen as.
func nobody() int {
	text, err := os.ReadFile("/proc/sys/kernel/overflowuid")
	if err != nil {
		return 65534
	}
	uid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 65534
	}
	return uid
}

// Wait returns when the plugin is executed under all means, or with the reason why it is not.
func (l *Launcher) Wait() error {
	_ = l.write.Close()
	defer l.read.Close()
	text, err := io.ReadAll(l.read)
	if err != nil {
		return fmt.Errorf("isolation: %w", err)
	}
	problem, done := strings.CutPrefix(string(text), isolated)
	switch {
	case done && problem == "":
		return nil
	case problem == "":
		return errors.New("isolation: the process has ended before it was isolated")
	}
	number, message, _ := strings.Cut(problem, " ")
	errno, _ := strconv.Atoi(number)
	return &launchError{text: message, errno: syscall.Errno(errno)}
}

// Close releases what Wrap has opened, if nothing was started.
func (l *Launcher) Close() {
	if l == nil {
		return
	}
	_ = l.write.Close()
	_ = l.read.Close()
}

// launchError is an error of the process between host and plugin.
type launchError struct {
	text  string
	errno syscall.Errno
}

func (e *launchError) Error() string { return "isolation: " + e.text }

// Unwrap returns the error of the kernel, if there was one.
func (e *launchError) Unwrap() error {
	if e.errno == 0 {
		return nil
	}
	return e.errno
}

// HideMemory keeps other processes of the same user from reading the memory of this one, and
// its secrets out of core dumps.
func HideMemory() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("make the process not dumpable: %w", err)
	}
	return nil
}
