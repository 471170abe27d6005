package store

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/catena-dev/catena/host/internal/guard"
)

// LockedError says that another process uses the data folder.
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
	return fmt.Sprintf("data folder %s is in use by %s: stop it, or choose another data folder", e.Dir, holder)
}

// DirLock is a lock on a data folder. The kernel releases it with the process.
type DirLock struct {
	file *os.File
	// WasOpen says that other users could enter the folder before.
	WasOpen bool
	// Replaceable says why other users could put another folder in its place, nil if
	// they cannot.
	Replaceable error
}

// lockName is the file that is locked. A folder that has it is a data folder.
const lockName = "lock"

// LockDir creates the data folder with mode 0700 if it does not exist, closes one that
// does to other users, and takes its lock. It refuses a folder in which others may have
// put something, and an open one that is used for something else. The error is a
// LockedError if another process has the lock.
func LockDir(dir string) (*DirLock, error) {
	if dir == "" {
		return nil, errors.New("no data folder given")
	}
	if err := checkUse(dir); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("create data folder: %w", err)
	}
	wasOpen, err := guard.Folder(dir)
	if err == nil {
		err = guard.CheckEntries(dir)
	}
	if err != nil {
		return nil, fmt.Errorf("data folder: %w", err)
	}
	file, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("data folder %s cannot be written: %w", dir, err)
	}
	locked, err := tryLock(file)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock data folder %s: %w", dir, err), file.Close())
	}
	if !locked {
		pid := readPID(file)
		return nil, errors.Join(&LockedError{Dir: dir, PID: pid}, file.Close())
	}
	lock := &DirLock{file: file, WasOpen: wasOpen, Replaceable: guard.CheckAbove(dir)}
	if err := lock.writePID(); err != nil {
		return nil, errors.Join(fmt.Errorf("data folder %s cannot be written: %w", dir, err), lock.Release())
	}
	return lock, nil
}

// checkUse keeps from closing a folder that others use, such as /tmp or a home, to them.
func checkUse(dir string) error {
	if !guard.IsOpen(dir) {
		return nil
	}
	if _, err := os.Lstat(filepath.Join(dir, lockName)); err == nil {
		return nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("data folder: %w", err)
	}
	for _, e := range entries {
		if e.Name() != "lost+found" { // of a file system of its own
			return fmt.Errorf("data folder %s is open to other users and is no data folder so far, it holds %s: choose another folder, or run chmod 700 %s", dir, e.Name(), dir)
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

// Release unlocks the folder. The file stays: removing it would let two processes
// hold locks on two files of the same name.
func (l *DirLock) Release() error { return l.file.Close() }

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
