package store

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/catena-dev/catena/host/internal/guard"
)

// LockedError is that another process uses the data directory.
type LockedError struct {
	Dir string
	// PID is the other process, 0 if it is not known.
	PID int
}

func (e *LockedError) Error() string {
	holder := "another process"
	if e.PID != 0 {
		holder = fmt.Sprintf("another catena host, process %d", e.PID)
	}
	return fmt.Sprintf("data directory %s is in use by %s: stop it, or choose another data directory", e.Dir, holder)
}

// DirLock is a lock on a data directory. The kernel releases it with the process.
type DirLock struct {
	dir  string // absolute
	file *os.File
	// WasOpen reports whether other users could enter the directory before.
	WasOpen bool
	// Replaceable is why other users could put another directory in its place, nil if
	// they cannot.
	Replaceable error
}

// lockName is the file that is locked. A directory that has it is a data directory.
const lockName = "lock"

// LockDir creates the data directory with mode 0700, or removes the rights of other users to
// an existing one, and takes its lock. It refuses a directory with files of another user, and
// one that other users can enter and that is used for something else. The error is a
// LockedError if another process has the lock.
func LockDir(dir string) (*DirLock, error) {
	if dir == "" {
		return nil, errors.New("no data directory given")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	if err := checkUse(dir); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("create data directory: %w", err)
	}
	wasOpen, err := guard.Dir(dir)
	if err == nil {
		err = guard.CheckEntries(dir)
	}
	if err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	file, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("data directory %s cannot be written: %w", dir, err)
	}
	locked, err := tryLock(file)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock data directory %s: %w", dir, err), file.Close())
	}
	if !locked {
		pid := readPID(file)
		return nil, errors.Join(&LockedError{Dir: dir, PID: pid}, file.Close())
	}
	lock := &DirLock{dir: dir, file: file, WasOpen: wasOpen, Replaceable: guard.CheckAbove(dir)}
	if err := lock.writePID(); err != nil {
		return nil, errors.Join(fmt.Errorf("data directory %s cannot be written: %w", dir, err), lock.Release())
	}
	return lock, nil
}

// checkUse refuses a directory that is used for something else, such as /tmp or a home: other
// users would lose their access to it.
func checkUse(dir string) error {
	if !guard.IsOpen(dir) {
		return nil
	}
	if _, err := os.Lstat(filepath.Join(dir, lockName)); err == nil {
		return nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	for _, e := range entries {
		if e.Name() != "lost+found" { // of a file system of its own
			return fmt.Errorf("%s is no data directory: other users can enter it, and it has other files, such as %s; choose another directory, such as %s", dir, e.Name(), filepath.Join(dir, "catena"))
		}
	}
	return nil
}

func (l *DirLock) writePID() error {
	if err := l.file.Truncate(0); err != nil {
		return err
	}
	_, err := l.file.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return err
}

// Check returns an error if the directory is no longer the one that was locked, because it was
// deleted, moved or replaced.
func (l *DirLock) Check() error {
	locked, err := l.file.Stat()
	if err != nil {
		return err
	}
	if now, err := os.Stat(filepath.Join(l.dir, lockName)); err == nil && os.SameFile(locked, now) {
		return nil
	}
	return fmt.Errorf("data directory %s was deleted or moved while it was in use", l.dir)
}

// Release unlocks the directory. The file stays: removing it would let two processes
// hold locks on two files of the same name.
func (l *DirLock) Release() error { return l.file.Close() }

// Holder returns the process that has the lock of a data directory, without taking it; 0 if none has, or if the
// system does not say.
func Holder(dir string) int {
	info, err := os.Stat(filepath.Join(dir, lockName))
	if err != nil {
		return 0
	}
	locks, err := os.ReadFile("/proc/locks")
	if err != nil {
		return 0
	}
	inode := fmt.Sprintf(":%d", info.Sys().(*syscall.Stat_t).Ino)
	for line := range strings.Lines(string(locks)) {
		// 1: FLOCK ADVISORY WRITE PID MAJOR:MINOR:INODE START END
		if f := strings.Fields(line); len(f) > 5 && f[1] == "FLOCK" && strings.HasSuffix(f[5], inode) {
			pid, _ := strconv.Atoi(f[4])
			return pid
		}
	}
	return 0
}

func readPID(file *os.File) int {
	text, err := io.ReadAll(io.LimitReader(file, 32))
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0
	}
	return pid
}
