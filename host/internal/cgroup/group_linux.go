package cgroup

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// removeTimeout is how long the kernel may take to end the processes of a group that were killed.
const removeTimeout = 5 * time.Second

// Group has one process and all that it has started. The methods of the nil Group do nothing. All
// methods may be called at any time, from any goroutine.
type Group struct {
	dir string
}

// Open opens the group for syscall.SysProcAttr.CgroupFD. The caller closes the file.
func (g *Group) Open() (*os.File, error) { return os.Open(g.dir) }

// Kill ends all processes of the group at once. It does not wait. A group that was removed is
// no error.
func (g *Group) Kill() error {
	if g == nil {
		return nil
	}
	err := write(g.dir, file{name: "cgroup.kill", text: "1"})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Remove removes the group, for whose processes, which have ended or were killed, it waits.
func (g *Group) Remove() error {
	if g == nil {
		return nil
	}
	return removeEmptied(g.dir, removeTimeout)
}

// Reached counts how often the group has come to its limits. It is zero once the group is removed.
func (g *Group) Reached() Reached {
	if g == nil {
		return Reached{}
	}
	return Reached{
		Memory: g.count("memory.events", "oom_kill"),
		CPU:    g.count("cpu.stat", "nr_throttled"),
		PIDs:   g.count("pids.events", "max"),
	}
}

// count returns a figure of a file of lines "KEY FIGURE", or 0.
func (g *Group) count(name, key string) int64 {
	text, err := os.ReadFile(filepath.Join(g.dir, name))
	if err != nil {
		return 0
	}
	n, _ := figure(text, key)
	return n
}

func figure(text []byte, key string) (int64, bool) {
	for line := range bytes.Lines(text) {
		k, value, _ := bytes.Cut(bytes.TrimSpace(line), []byte(" "))
		if string(k) == key {
			n, err := strconv.ParseInt(string(value), 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}

// write writes to a file of a group.
func write(dir string, f file) error {
	w, err := os.OpenFile(filepath.Join(dir, f.name), os.O_WRONLY, 0)
	if f.optional && errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = w.WriteString(f.text)
	return errors.Join(err, w.Close())
}

// removeEmptied removes a group, and what is below it, as soon as no process is in it, or
// returns an error after the time.
func removeEmptied(dir string, within time.Duration) error {
	if err := awaitEmpty(dir, time.Now().Add(within)); err != nil {
		return fmt.Errorf("remove cgroup %s: %w", dir, err)
	}
	return remove(dir)
}

// remove removes a group and the groups below it, which have no processes.
func remove(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, e := range entries {
		if e.IsDir() {
			errs = append(errs, remove(filepath.Join(dir, e.Name())))
		}
	}
	if err := unix.Rmdir(dir); err != nil && !errors.Is(err, unix.ENOENT) {
		errs = append(errs, fmt.Errorf("remove cgroup %s: %w", dir, err))
	}
	return errors.Join(errs...)
}

// errPopulated is why a group cannot be removed.
var errPopulated = errors.New("processes that were killed have not ended")

// awaitEmpty returns when no process is in a group or below.
func awaitEmpty(dir string, deadline time.Time) error {
	events, err := os.Open(filepath.Join(dir, "cgroup.events"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer events.Close()
	buf := make([]byte, 256)
	for {
		n, err := events.ReadAt(buf, 0)
		if errors.Is(err, unix.ENODEV) {
			return nil // it was removed
		}
		if populated, ok := figure(buf[:n], "populated"); !ok || populated == 0 {
			return nil
		}
		left := time.Until(deadline)
		if left <= 0 {
			return errPopulated
		}
		// The kernel notifies of each change since the last read.
		fds := []unix.PollFd{{Fd: int32(events.Fd()), Events: unix.POLLPRI}}
		if _, err := unix.Poll(fds, int(left.Milliseconds())+1); err != nil && !errors.Is(err, unix.EINTR) {
			return os.NewSyscallError("poll", err)
		}
	}
}
