package process

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// removeTree is os.RemoveAll for a directory that a stage has written: it needs three descriptors however deep that is, and does not
// mind the modes of what the stage has made. It follows no link.
func removeTree(dir string) error {
	root, err := os.OpenFile(dir, unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer root.Close()
	for moved := 0; ; {
		names, err := root.Readdirnames(128)
		if len(names) == 0 {
			if _, seekErr := root.Seek(0, 0); seekErr != nil {
				return seekErr
			}
			if names, err = root.Readdirnames(128); len(names) == 0 { // what was moved here may be behind the place where it was read
				break
			}
		}
		if err != nil {
			return err
		}
		for _, name := range names {
			if err := flatten(int(root.Fd()), name, &moved); err != nil {
				return fmt.Errorf("remove %s in %s: %w", strconv.Quote(name), dir, err)
			}
		}
	}
	return os.Remove(dir)
}

// flatten removes a file, or a directory after it has moved the directories in it to root.
func flatten(root int, name string, moved *int) error {
	err := unix.Unlinkat(root, name, 0)
	if err == nil || errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err = unix.Unlinkat(root, name, unix.AT_REMOVEDIR); err == nil {
		return nil
	}
	fd, err := openWritable(root, name)
	if err != nil {
		return err
	}
	dir := os.NewFile(uintptr(fd), name)
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return err
	}
	for _, child := range names {
		err := unix.Unlinkat(fd, child, 0)
		if err != nil {
			err = unix.Unlinkat(fd, child, unix.AT_REMOVEDIR)
		}
		if err == nil || errors.Is(err, unix.ENOENT) {
			continue
		}
		own, err := openWritable(fd, child) // a directory that moves has to be writable
		if err != nil {
			return err
		}
		_ = unix.Close(own)
		for err = unix.EEXIST; errors.Is(err, unix.EEXIST); *moved++ {
			err = unix.Renameat2(fd, child, root, fmt.Sprintf("moved-%d", *moved), unix.RENAME_NOREPLACE)
		}
		if err != nil {
			return err
		}
	}
	return unix.Unlinkat(root, name, unix.AT_REMOVEDIR)
}

// openWritable opens a directory, whose mode it changes if that is in the way.
func openWritable(parent int, name string) (int, error) {
	handle, err := unix.Openat(parent, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(handle)
	self := "/proc/self/fd/" + strconv.Itoa(handle)
	if err := unix.Chmod(self, 0o700); err != nil {
		return -1, err
	}
	return unix.Open(self, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
}
