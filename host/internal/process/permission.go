package process

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/catena-dev/catena/host/internal/guard"
)

func checkRegular(info fs.FileInfo) error {
	if info.IsDir() {
		return errors.New("is a directory, not a file")
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("is no regular file (%s)", info.Mode())
	}
	return nil
}

// checkFile checks the open file itself. path is for the errors.
func checkFile(f *os.File, path string) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if err := checkRegular(info); err != nil {
		return err
	}
	if info.Mode().Perm()&0o111 == 0 {
		return fmt.Errorf("is not executable; run chmod +x %s", path)
	}
	if err := guard.CheckInfo(path, info); err != nil {
		return err
	}
	return checkFormat(f)
}

// checkPath checks that no other user can replace path, or add a file beside it: in its
// directory, and if path is a link, in the directory of its target.
func checkPath(path string) error {
	target, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	dirs := []string{filepath.Dir(path)}
	if d := filepath.Dir(target); d != dirs[0] {
		dirs = append(dirs, d)
	}
	for _, dir := range dirs {
		if err := guard.CheckPath(dir); err != nil {
			return fmt.Errorf("its directory %s %w", dir, err)
		}
	}
	return guard.CheckPath(path)
}
