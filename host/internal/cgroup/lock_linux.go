package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// prefix begins the names of all trees.
const prefix = "catena-"

// makeLocked makes the group of a tree, and locks it as long as the file is open: one that is
// not locked is of a host that was killed. Other users, who could lock it too, cannot open it.
func makeLocked(dir string) (*os.File, error) {
	const attempts = 10 // sweep may remove it before it is locked
	for range attempts {
		if err := os.Mkdir(dir, 0o711); err != nil && !errors.Is(err, os.ErrExist) {
			return nil, fmt.Errorf("the cgroup of this process is not delegated to its user: %w", err)
		}
		f, err := os.Open(dir)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
			return nil, errors.Join(fmt.Errorf("lock cgroup %s: %w", dir, err), f.Close())
		}
		if same(f, dir) {
			return f, nil
		}
		_ = f.Close()
	}
	return nil, fmt.Errorf("cgroup %s is removed again and again", dir)
}

// same reports whether an open file is still the one at a path.
func same(f *os.File, path string) bool {
	open, err := f.Stat()
	if err != nil {
		return false
	}
	there, err := os.Stat(path)
	return err == nil && os.SameFile(open, there)
}

// sweep removes the trees without processes of hosts that were killed and have not started again. It
// does what it can.
func sweep(parent string) {
	trees, err := filepath.Glob(filepath.Join(parent, prefix+"*"))
	if err != nil {
		return
	}
	for _, dir := range trees {
		f, err := os.Open(dir)
		if err != nil {
			continue
		}
		if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			_ = removeEmptied(dir, 0)
		}
		_ = f.Close()
	}
}
