package guard

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// File removes the rights of other users to a file, which must belong to this user or root.
// A file that does not exist is no error.
func File(path string) error {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := checkOwner(info, path); err != nil {
		return err
	}
	if info.Mode().Perm()&othersMode == 0 {
		return nil
	}
	if err := os.Chmod(path, info.Mode().Perm()&^othersMode); err != nil {
		return fmt.Errorf("%s is open to other users: %w", path, err)
	}
	return nil
}

// WriteFile writes a file that only its owner can read, in place of one that exists. It appears complete or not at all,
// even if the machine fails in between. A link is replaced, not followed.
func WriteFile(path string, write func(io.Writer) error) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("write %s: %w", path, err)
		}
	}()
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+".*") // mode 0600
	if err != nil {
		return err
	}
	if err = errors.Join(write(f), f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return syncDir(dir)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
