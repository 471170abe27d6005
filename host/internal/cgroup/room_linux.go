package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/catena-dev/catena/host/internal/usage"
)

// leafName is the group of the host itself.
const leafName = "host"

// room is what makeRoom has changed.
type room struct {
	leaf    string   // the group that this process was moved to, if it was
	enabled []string // controllers, in the cgroup that it was moved from
}

// makeRoom enables controllers for the groups in dir, and returns why it could not, by controller.
//
// But for the root, a cgroup that has controllers for its children has no processes (cgroups(7), "no
// internal processes"). So this process moves out of the parent, as those of systemd's DelegateSubgroup
// do. Other processes are not moved: their parents do not expect that.
func makeRoom(dir string, controllers []string) (room, map[string]error) {
	parent, lacks := filepath.Dir(dir), map[string]error{}
	var there []string
	for _, c := range controllers {
		if err := offered(parent, c); err != nil {
			lacks[c] = err
			continue
		}
		there = append(there, c)
	}
	if len(there) == 0 {
		return room{}, lacks
	}
	r, err := vacate(parent, dir)
	for _, c := range there {
		reason := err
		if reason == nil {
			reason = r.enable(parent, dir, c)
		}
		if reason != nil {
			lacks[c] = fmt.Errorf("the cgroup v2 controller %s cannot be used: %w", c, reason)
		}
	}
	return r, lacks
}

// offered returns an error if a cgroup does not have a controller for its children.
func offered(dir, controller string) error {
	ok, err := has(dir, "cgroup.controllers", controller)
	switch {
	case err != nil:
		return err
	case !ok:
		return fmt.Errorf("no cgroup v2 controller %s is delegated to %s; set Delegate=yes in the unit if systemd runs catena", controller, dir)
	case managed(dir):
		return fmt.Errorf("the cgroup %s is systemd's, which resets its controllers; set Delegate=yes in the unit", dir)
	}
	return nil
}

// managed reports whether a cgroup is of a unit of systemd that is not delegated, though root can
// write to it. Systemd marks those that are.
func managed(dir string) bool {
	switch filepath.Ext(dir) {
	case ".service", ".scope", ".slice":
	default:
		return false
	}
	mark := make([]byte, 8)
	for _, name := range []string{"trusted.delegate", "user.delegate"} {
		if n, err := unix.Getxattr(dir, name, mark); err == nil && string(mark[:n]) == "1" {
			return false
		}
	}
	return os.Geteuid() == 0 // other users cannot see the mark of some versions
}

// vacate moves this process, and those that it has started, out of the parent of dir.
func vacate(parent, dir string) (room, error) {
	if _, err := os.Stat(filepath.Join(parent, "cgroup.type")); errors.Is(err, fs.ErrNotExist) {
		return room{}, nil // the root has none
	}
	pids, err := processesOf(parent)
	if err != nil {
		return room{}, err
	}
	if other := foreign(pids); other >= 0 {
		return room{}, fmt.Errorf("there are other processes in the cgroup %s (process %d); run catena in one of its own, such as a unit of systemd with Delegate=yes", parent, other)
	}
	r := room{leaf: filepath.Join(dir, leafName)}
	if err := os.Mkdir(r.leaf, 0o755); err != nil {
		return room{}, err
	}
	if err := move(parent, r.leaf); err != nil {
		return room{}, errors.Join(err, move(r.leaf, parent), remove(r.leaf))
	}
	return r, nil
}

// enable enables a controller for the children of parent, and those of dir.
func (r *room) enable(parent, dir, controller string) error {
	before, err := has(parent, "cgroup.subtree_control", controller)
	if err != nil {
		return err
	}
	if !before {
		if err := write(parent, file{name: "cgroup.subtree_control", text: "+" + controller}); err != nil {
			return err
		}
		r.enabled = append(r.enabled, controller)
	}
	return write(dir, file{name: "cgroup.subtree_control", text: "+" + controller})
}

// giveBack moves this process back to where it was, which takes that no controller is enabled there.
func (r *room) giveBack(dir string) error {
	if r.leaf == "" {
		return nil
	}
	var errs []error
	for _, d := range []string{dir, filepath.Dir(dir)} {
		for _, c := range r.enabled {
			errs = append(errs, write(d, file{name: "cgroup.subtree_control", text: "-" + c}))
		}
	}
	return errors.Join(errors.Join(errs...), move(r.leaf, filepath.Dir(dir)))
}

// move moves all processes of a group, until none is left: they may start others.
func move(from, to string) error {
	const attempts = 100
	for range attempts {
		pids, err := processesOf(from)
		if err != nil {
			return err
		}
		if len(pids) == 0 {
			return nil
		}
		for _, pid := range pids {
			err := write(to, file{name: "cgroup.procs", text: strconv.Itoa(pid)})
			if err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("move process %d: %w", pid, err)
			}
		}
	}
	return fmt.Errorf("processes of the cgroup %s start others without end", from)
}

// processesOf returns the processes of a group, without those below. 0 is one of another
// process namespace.
func processesOf(dir string) ([]int, error) {
	text, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, word := range strings.Fields(string(text)) {
		pid, err := strconv.Atoi(word)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Join(dir, "cgroup.procs"), err)
		}
		pids = append(pids, pid)
	}
	return pids, nil
}

// foreign returns a process that this one has not started, or -1.
func foreign(pids []int) int {
	for _, pid := range pids {
		if !descends(pid) {
			return pid
		}
	}
	return -1
}

// descends reports whether a process is this one or was started by it. One that has ended was.
func descends(pid int) bool {
	const deepest = 1000
	for range deepest {
		switch {
		case pid == os.Getpid():
			return true
		case pid <= 1:
			return false
		}
		parent, ok := usage.Parent(pid)
		if !ok {
			return true
		}
		pid = parent
	}
	return false
}
