package guard

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// others are the rights of everybody but the owner.
const others fs.FileMode = 0o077

// Folder makes a folder that only this user can enter, with those above it, or
// closes one that is there to everybody else, and tells whether it was open to others.
// It refuses a folder, or a link to one, that is another user's.
func Folder(dir string) (wasOpen bool, err error) {
	dir, err = follow(dir)
	if err != nil {
		return false, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return false, err
	}
	// What is checked is what is closed, even if the path leads elsewhere by then.
	f, err := os.OpenFile(dir, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return false, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return false, err
	}
	if uid := ownerOf(info); uid != os.Geteuid() {
		return false, fmt.Errorf("%s belongs to user %d, it must belong to the user that runs catena (%d)", dir, uid, os.Geteuid())
	}
	if info.Mode().Perm()&others == 0 {
		return false, nil
	}
	return true, f.Chmod(0o700)
}

// IsOpen tells whether others can enter or list a folder that there may be already.
func IsOpen(dir string) bool {
	info, err := os.Stat(dir)
	return err == nil && info.IsDir() && info.Mode().Perm()&others != 0
}

// follow returns where a link leads that this user or root has made. Any other path
// is returned as it is.
func follow(dir string) (string, error) {
	info, err := os.Lstat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return dir, nil
	}
	if err != nil || info.Mode()&fs.ModeSymlink == 0 {
		return dir, err
	}
	if err := checkOwner(info, dir); err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(dir)
}

// CheckAbove returns an error if every user could put another folder in the place of dir,
// because of the mode of one above it. In a sticky one such as /tmp, only owners rename.
// That is to be told, and no reason to refuse: in a container there are no other users,
// and its volumes often have that mode.
func CheckAbove(dir string) error {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	above, err := filepath.EvalSymlinks(filepath.Dir(abs))
	if err != nil {
		return err
	}
	for ; ; above = filepath.Dir(above) {
		info, err := os.Stat(above)
		if err != nil {
			return err
		}
		if info.Mode().Perm()&0o002 != 0 && info.Mode()&fs.ModeSticky == 0 {
			return fmt.Errorf("%s is below a folder that every user of this machine can write to; run chmod o-w %s", dir, above)
		}
		if above == filepath.Dir(above) {
			return nil
		}
	}
}

// CheckEntries checks that what is in a folder, which is closed by now, is of this
// user's or root's making: somebody else may have put it there before.
func CheckEntries(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var problems []error
	for _, e := range entries {
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = checkOwner(info, filepath.Join(dir, e.Name()))
		}
		problems = append(problems, err)
	}
	return errors.Join(problems...)
}

func checkOwner(info fs.FileInfo, path string) error {
	uid := ownerOf(info)
	if uid == 0 || uid == os.Geteuid() {
		return nil
	}
	return fmt.Errorf("%s belongs to user %d, who could have put anything there: it must belong to root or to the user that runs catena (%d)",
		path, uid, os.Geteuid())
}

// ownerOf returns -1 if the system does not tell.
func ownerOf(info fs.FileInfo) int {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(stat.Uid)
	}
	return -1
}
