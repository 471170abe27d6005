package isolation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/catena-dev/catena/host/internal/bounds"
	"github.com/catena-dev/catena/host/internal/guard"
	"github.com/catena-dev/catena/host/internal/isolation/seccomp"
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
	// Path and Argv are what it executes. Without it, it only tries all means.
	Path string   `json:"path"`
	Argv []string `json:"argv"`
	// Binary is the path of the file that is executed, and Inherited the descriptor by which Path leads to it.
	Binary    string `json:"binary"`
	Inherited int    `json:"inherited"`
	// Namespaces reports whether it has namespaces of its own, which need a view.
	Namespaces bool    `json:"namespaces"`
	View       []entry `json:"view"`
	// Dirs are for the working directory: the first one that exists.
	Dirs []string `json:"dirs"`
	// MapSelf reports whether it has to map its own user, of this id in both namespaces.
	MapSelf bool `json:"mapSelf"`
	// Become is the user that it becomes, as it is in its namespace; 0 if none. Group is one that it is a member of besides.
	Become int `json:"become"`
	Group  int `json:"group"`
	UID    int `json:"uid"`
	GID    int `json:"gid"`
	// Filter and Landlock say what else is applied.
	Filter   *seccomp.Options `json:"filter"`
	Landlock int              `json:"landlock"`
	Network  bool             `json:"network"`
	// OpenFiles is how many files may be open, and Processes how many processes the user may have, 0 if that stays as it is.
	OpenFiles uint64 `json:"openFiles"`
	Processes uint64 `json:"processes"`
}

// Detect finds out what this machine can do, by doing it with a process that ends at once.
func Detect(ctx context.Context) *Machine {
	m := &Machine{Root: os.Geteuid() == 0, Filter: seccomp.Available(), Landlock: landlockVersion()}
	if m.Root {
		m.OwnUsers = changesUsers()
	}
	m.Namespaces = explained(m.try(ctx))
	return m
}

// explained adds to the reason for which there are no namespaces what else it can mean.
func explained(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errProc):
		return fmt.Errorf("%w: parts of /proc are masked, as in containers by default", err)
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("%w: a seccomp profile, as in containers by default, or the system forbids user namespaces", err)
	case errors.Is(err, unix.EACCES):
		return fmt.Errorf("%w: the system forbids programs without an AppArmor profile to use user namespaces", err)
	case errors.Is(err, unix.ENOSPC):
		return fmt.Errorf("%w: user.max_user_namespaces is reached", err)
	}
	return err
}

// errProc is why a view has no processes.
var errProc = errors.New("/proc cannot be mounted")

// changesUsers returns why this process, which is root's, cannot give processes to other users.
func changesUsers() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var have [2]unix.CapUserData
	if err := unix.Capget(&header, &have[0]); err != nil {
		return fmt.Errorf("capabilities: %w", err)
	}
	var lacks []string
	for _, c := range []struct {
		name   string
		number uint
	}{{"CAP_CHOWN", unix.CAP_CHOWN}, {"CAP_FOWNER", unix.CAP_FOWNER}, {"CAP_KILL", unix.CAP_KILL},
		{"CAP_SETGID", unix.CAP_SETGID}, {"CAP_SETUID", unix.CAP_SETUID}} {
		if have[0].Effective&(1<<c.number) == 0 {
			lacks = append(lacks, c.name)
		}
	}
	if len(lacks) > 0 {
		return fmt.Errorf("catena runs as root without %s", strings.Join(lacks, ", "))
	}
	return nil
}

// try runs the launch step, without a plugin.
func (m *Machine) try(ctx context.Context) error {
	l := &Launcher{plan: plan{namespaces: true, filter: m.Filter == nil, landlock: m.Landlock}, view: sortView(system())}
	if m.Root && m.OwnUsers == nil {
		l.own, l.uid = true, guard.FirstStageID
	}
	attr := &os.ProcAttr{Env: []string{}, Files: []*os.File{nil, nil, nil}, Sys: &syscall.SysProcAttr{}}
	path, argv, err := l.Wrap("", nil, -1, attr)
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
	binary  string
	dir     string // of the process alone
	net     bool
	files   uint64   // that may be open
	uid     int      // its own; 0 if it has the user of this process
	users   *Users   // of the host, of which it is one; nil if others may have its user
	begun   bool     // see Begin
	group   int      // that may pass through directories of the host; 0 if it need not
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
		m = &Machine{Root: os.Geteuid() == 0, Namespaces: errors.New("were not looked for"), Filter: errors.New("was not looked for")}
	}
	pl, missing := m.plan(p)
	if p.Mode == Required && len(missing) > 0 {
		return nil, refusal(p.Stage, missing)
	}
	view, err := p.view(env)
	if err != nil {
		return nil, err
	}
	l := &Launcher{plan: pl, missing: missing, view: view, dirs: workingDir(p.DataDir), binary: p.Binary, dir: p.Dir,
		net: p.Network, files: p.OpenFiles}
	if l.files == 0 && !p.ManyFiles {
		l.files = bounds.OpenFiles
	}
	if pl.own {
		if err := l.giveUser(m, p); err != nil {
			return nil, fmt.Errorf("isolation: %w; or set stages.%s.isolation to off, if the stage is to have the rights of root", err, p.Stage)
		}
	}
	return l, nil
}

// giveUser gives the process a user of its own, with what that needs. A process of a stage never has the user root.
func (l *Launcher) giveUser(m *Machine, p Process) error {
	if m.OwnUsers != nil {
		return fmt.Errorf("a user of its own: %w", m.OwnUsers)
	}
	users := m.Users
	l.users = users
	var err error
	if users == nil {
		if users, err = OpenUsers(""); err != nil {
			return err
		}
	}
	if l.uid, err = users.Of(p.Stage); err != nil {
		return err
	}
	if !l.namespaces {
		if l.group, err = users.group(); err != nil {
			return err
		}
	}
	if err := p.readable(l.uid); err != nil {
		return fmt.Errorf("a user of its own: %w", err)
	}
	return errors.Join(l.give(p.DataDir, p.Dir), l.open(p))
}

// readable returns an error if a file that the process needs keeps its user out.
func (p Process) readable(uid int) error {
	if p.Binary == "" {
		return nil
	}
	granted, err := p.files()
	if err != nil {
		return err
	}
	errs := []error{permits(p.Binary, uid, unix.R_OK|unix.X_OK), permits(filepath.Dir(p.Binary), uid, unix.R_OK)}
	for _, f := range granted {
		rights := unix.R_OK
		if f.write {
			rights |= unix.W_OK
		}
		errs = append(errs, permits(f.path, uid, rights))
	}
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// open lets the process' own user connect to sockets: those of the stage, which begin with its name, become its
// property, and others are open to all. Their directories keep out all others, and without namespaces let a group pass
// in which only stages are.
func (l *Launcher) open(p Process) error {
	for _, socket := range p.Sockets {
		err := error(nil)
		if strings.HasPrefix(filepath.Base(socket), p.Stage+"-") {
			err = os.Lchown(socket, l.uid, -1)
		} else {
			err = os.Chmod(socket, 0o666)
		}
		if err != nil {
			return err
		}
	}
	if l.namespaces {
		return nil
	}
	own := append(slices.Clone(p.Own), filepath.Dir(p.Dir))
	for _, path := range append([]string{p.DataDir, p.Dir}, p.Sockets...) {
		if path == "" {
			continue
		}
		if err := pass(path, own, l.uid, l.group); err != nil {
			return err
		}
	}
	if p.Socket == "" {
		return nil
	}
	return os.Lchown(p.Socket, l.uid, -1)
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
	if l.uid != 0 && permits(path, l.uid, unix.R_OK) != nil {
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

// Wrap returns what to start in place of path and argv, and adds to attr what that needs. The file
// that path leads to is inherited as that descriptor; its index in attr.Files.
func (l *Launcher) Wrap(path string, argv []string, inherited int, attr *os.ProcAttr) (string, []string, error) {
	var err error
	if l.read, l.write, err = os.Pipe(); err != nil {
		return "", nil, fmt.Errorf("isolation: %w", err)
	}
	c := launch{
		Status: len(attr.Files), Path: path, Argv: argv, Binary: l.binary, Inherited: inherited,
		Namespaces: l.namespaces, View: l.view, Dirs: l.dirs, UID: os.Geteuid(), GID: os.Getegid(), Become: l.uid, Group: l.group,
		Landlock: l.landlock, Network: l.net, OpenFiles: l.files,
	}
	if l.filter {
		c.Filter = &seccomp.Options{
			Internet: l.namespaces || l.net, SharedFiles: l.shared(), SharedProcesses: l.shared(), Truncate: l.landlock >= landlockTruncate,
		}
	}
	if !l.shared() { // others of the user would count
		c.Processes = bounds.Processes
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
// A host that runs as root maps the user of the stage to "nobody", the user that every other user
// outside of the namespace is seen as: stages check that the host has the same user as they.
// Any other host has to leave it to the process to map itself, since the files in /proc of what
// it has forked, as its own, belong to root (see HideMemory).
func (l *Launcher) namespace(c *launch, attr *os.ProcAttr) {
	attr.Sys.Cloneflags |= unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS
	if !l.net {
		attr.Sys.Cloneflags |= unix.CLONE_NEWNET
	}
	attr.Sys.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_SETPCAP, unix.CAP_SETUID, unix.CAP_SETGID}
	if l.uid == 0 {
		c.MapSelf = true
		return
	}
	c.Become = overflowUser()
	attr.Sys.UidMappings = []syscall.SysProcIDMap{{ContainerID: c.Become, HostID: l.uid, Size: 1}}
	attr.Sys.GidMappings = []syscall.SysProcIDMap{{ContainerID: c.Become, HostID: l.uid, Size: 1}}
	attr.Sys.GidMappingsEnableSetgroups = true
}

// overflowUser is the user that users without a mapping are seen as.
func overflowUser() int {
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
	if strings.HasPrefix(message, errProc.Error()) {
		return fmt.Errorf("isolation: %w", errProc)
	}
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
