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

// dirLock is a lock on a data folder. The kernel releases it with the process.
type dirLock struct{ file *os.File }

// lockDir creates the folder if needed and takes its lock, or returns LockedError.
func lockDir(dir string) (*dirLock, error) {
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
	lock := &dirLock{file: file}
	if err := lock.writePID(); err != nil {
		return nil, errors.Join(fmt.Errorf("data folder %s cannot be written: %w", dir, err), lock.release())
	}
	return lock, nil
}

func (l *dirLock) writePID() error {
	if err := l.file.Truncate(0); err != nil {
		return err
	}
	_, err := l.file.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return err
}

// release unlocks the folder. The file stays: removing it would let two processes
// hold locks on two files of the same name.
func (l *dirLock) release() error { return l.file.Close() }

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
