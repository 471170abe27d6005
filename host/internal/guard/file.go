package guard

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// File closes a file to everybody but its owner, who has to be this user or root.
// One that is not there is no error.
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
	if info.Mode().Perm()&others == 0 {
		return nil
	}
	if err := os.Chmod(path, info.Mode().Perm()&^others); err != nil {
		return fmt.Errorf("%s is open to other users: %w", path, err)
	}
	return nil
}
