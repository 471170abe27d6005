package cgroup

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Tree has the groups of one host. The nil Tree has none. All methods but Close may be called at
// any time, from any goroutine.
type Tree struct {
	dir  string
	lock *os.File // of dir
	// err is why there are no groups.
	err error
	// lacks says why there is no controller, by name.
	lacks map[string]error
	// room is what was changed for the controllers.
	room room
}

// Name returns the name of the groups of the host that has locked a data directory. It is the same
// in all runs, and no other directory has it, whatever its path in another container.
func Name(dataDir string) (string, error) {
	info, err := os.Stat(dataDir)
	if err != nil {
		return "", err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return "", ErrUnsupported
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %d", stat.Dev, stat.Ino))
	return fmt.Sprintf("%s%x", prefix, sum[:6]), nil
}

// Clean ends what a host of this name has left when it was killed, without which there is
// nothing to do.
func Clean(name string) error {
	own, err := own()
	if err != nil {
		return nil // then there was none before
	}
	return end(filepath.Join(own, name))
}

// end ends all processes of a group and removes it.
func end(dir string) error {
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := (&Group{dir: dir}).Kill(); err != nil {
		return fmt.Errorf("end what is left in the cgroup %s: %w", dir, err)
	}
	return removeEmptied(dir, removeTimeout)
}

// own returns the directory of the cgroup of this process.
func own() (string, error) {
	cgroups, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", err
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", err
	}
	return find(cgroups, mounts)
}

// Open makes the tree of that name below the cgroup of this process, after Clean. No other host
// may use the name. For the controllers of limits it moves this process into a group in the tree
// if no other process is in its cgroup. Nothing of that is an error here: Err is why
// there are no groups, Lacks why a limit cannot be in force.
func Open(name string) *Tree { return open(name, []string{Memory, CPU, PIDs}) }

func open(name string, controllers []string) *Tree {
	t := &Tree{lacks: map[string]error{}}
	if t.err = t.make(name); t.err != nil {
		return t
	}
	t.room, t.lacks = makeRoom(t.dir, controllers)
	return t
}

// make makes the group of the tree.
func (t *Tree) make(name string) error {
	parent, err := own()
	if err != nil {
		return err
	}
	if err := canClone(); err != nil {
		return err
	}
	dir := filepath.Join(parent, name)
	if err := end(dir); err != nil {
		return err
	}
	lock, err := makeLocked(dir)
	if err != nil {
		return err
	}
	if err := canJoin(parent, dir); err != nil {
		return errors.Join(err, remove(dir), lock.Close())
	}
	sweep(parent)
	t.dir, t.lock = dir, lock
	return nil
}

// canClone returns an error if the kernel does not start processes in a group. Without arguments
// the call only fails, and another error than otherwise means that the process is missing, or that it is
// forbidden.
func canClone() error {
	_, _, errno := unix.RawSyscall(unix.SYS_CLONE3, 0, 0, 0)
	if errno == unix.EINVAL {
		return nil
	}
	return fmt.Errorf("processes cannot be started in a cgroup: %w", os.NewSyscallError("clone3", errno))
}

// canJoin returns an error if processes cannot be put into a group, or not be killed there.
func canJoin(parent, dir string) error {
	if err := canWrite(filepath.Join(parent, "cgroup.procs")); err != nil {
		return fmt.Errorf("the cgroup of this process is not delegated to its user: %w", err)
	}
	if err := canWrite(filepath.Join(dir, "cgroup.kill")); err != nil {
		return fmt.Errorf("cgroup.kill takes Linux 5.14: %w", err)
	}
	return nil
}

func canWrite(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	return f.Close()
}

// Err returns why there are no groups, nil if there are.
func (t *Tree) Err() error {
	if t == nil {
		return errNotOpened
	}
	return t.err
}

// Lacks returns those of the limits that cannot be in force, with the reason.
func (t *Tree) Lacks(l Limits) []Lack {
	var all []Lack
	for _, name := range l.names() {
		if err := t.lack(name); err != nil {
			all = append(all, Lack{Limit: name, Err: err})
		}
	}
	return all
}

func (t *Tree) lack(limit string) error {
	if err := t.Err(); err != nil {
		return fmt.Errorf("there is no cgroup v2 controller %s: %w", limit, err)
	}
	return t.lacks[limit]
}

// New makes a group with those of the limits that can be in force. Remove it in the end.
func (t *Tree) New(name string, l Limits) (*Group, error) {
	if err := t.Err(); err != nil {
		return nil, err
	}
	g := &Group{dir: filepath.Join(t.dir, name)}
	if err := os.Mkdir(g.dir, 0o755); err != nil {
		return nil, fmt.Errorf("make a cgroup: %w", err)
	}
	for _, limit := range l.names() {
		if t.lack(limit) != nil {
			continue
		}
		for _, f := range l.files(limit) {
			if err := write(g.dir, f); err != nil {
				return nil, errors.Join(fmt.Errorf("limit of %s: %w", limit, err), remove(g.dir))
			}
		}
	}
	return g, nil
}

// Close ends all processes that are left in groups, and removes the tree. It is called once.
func (t *Tree) Close() error {
	if t.Err() != nil {
		return nil
	}
	defer t.lock.Close()
	var errs []error
	entries, err := os.ReadDir(t.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if dir := filepath.Join(t.dir, e.Name()); e.IsDir() && dir != t.room.leaf {
			errs = append(errs, end(dir))
		}
	}
	return errors.Join(errors.Join(errs...), t.room.giveBack(t.dir), remove(t.dir))
}

// has reports whether a file of names separated by spaces has one.
func has(dir, name, word string) (bool, error) {
	text, err := os.ReadFile(filepath.Join(dir, name))
	return slices.Contains(strings.Fields(string(text)), word), err
}
