package guard

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// othersMode are the rights of all users but the owner.
const othersMode fs.FileMode = 0o077

// Dir makes a directory with mode 0700, and those above it, or removes the rights of other
// users to an existing one, and reports whether there were any. It refuses a directory, or a
// link to one, of another user.
func Dir(dir string) (wasOpen bool, err error) {
	dir, err = follow(dir)
	if err != nil {
		return false, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return false, err
	}
	// The directory that is checked is the one whose mode is set, even if the path is changed meanwhile.
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
	if info.Mode().Perm()&othersMode == 0 {
		return false, nil
	}
	return !passableByStages(info), f.Chmod(0o700)
}

// IsOpen reports whether a directory exists and other users can enter or list it.
func IsOpen(dir string) bool {
	info, err := os.Stat(dir)
	return err == nil && info.IsDir() && info.Mode().Perm()&othersMode != 0 && !passableByStages(info)
}

// passableByStages reports whether stages, and no others, can pass through a directory, and do no more.
func passableByStages(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && info.Mode().Perm()&othersMode == 0o010 && IsStageID(int(stat.Gid))
}

// follow returns the target of a link that belongs to this user or root, and any other path
// unchanged.
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

// CheckAbove returns an error if another user could replace dir, because of the mode or the owner of a directory
// above it. In a sticky one such as /tmp, only the owner of a file can rename it. This is worth
// a warning but no refusal: in a container there are no other users, and its volumes
// often have that mode.
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
			return fmt.Errorf("%s is below a directory that every user of this machine can write to; run chmod o-w %s", dir, above)
		}
		if err := checkUser(above, info); err != nil {
			return fmt.Errorf("%s is below a directory that %w; or set dataDir to another", dir, err)
		}
		if above == filepath.Dir(above) {
			return nil
		}
	}
}

// CheckEntries checks that all files in a directory belong to this user or to root. Another user
// may have made one before the directory was closed.
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

// CheckReadable returns an error with the owner of a directory that this user may not read.
func CheckReadable(dir string) error {
	if _, err := os.ReadDir(dir); !errors.Is(err, fs.ErrPermission) {
		return nil
	}
	owner := "another user"
	if info, err := os.Stat(dir); err == nil {
		owner = userName(ownerOf(info))
	}
	this := userName(os.Geteuid())
	return fmt.Errorf("%s belongs to %s, and this is %s, who may not read it: run it as %[2]s", dir, owner, this)
}

// userName is what people call a user.
func userName(uid int) string {
	number := strconv.Itoa(uid)
	if known, err := user.LookupId(number); err == nil {
		return known.Username
	}
	return "user " + number
}

func checkOwner(info fs.FileInfo, path string) error {
	uid := ownerOf(info)
	if uid == 0 || uid == os.Geteuid() {
		return nil
	}
	return fmt.Errorf("%s belongs to user %d, who can change it: it must belong to root or to the user that runs catena (%d)",
		path, uid, os.Geteuid())
}

// ownerOf returns -1 if the system does not report the owner.
func ownerOf(info fs.FileInfo) int {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(stat.Uid)
	}
	return -1
}
