package guard

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
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
