package store

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
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
type DirLock struct{ file *os.File }

// LockDir creates the data folder with mode 0700 if it does not exist and takes its
// lock. The error is a LockedError if another process has it.
func LockDir(dir string) (*DirLock, error) {
	if dir == "" {
		return nil, errors.New("no data folder given")
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("create data folder: %w", err)
	}
	file, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
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
	lock := &DirLock{file: file}
	if err := lock.writePID(); err != nil {
		return nil, errors.Join(fmt.Errorf("data folder %s cannot be written: %w", dir, err), lock.Release())
	}
	return lock, nil
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
