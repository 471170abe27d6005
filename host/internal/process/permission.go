package process

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
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
	if info.Mode().Perm()&0o002 != 0 {
		return fmt.Errorf("can be changed by every user of this machine; run chmod o-w %s", path)
	}
	if err := checkOwner(info, path); err != nil {
		return err
	}
	return checkFormat(f)
}

// checkDirs checks that no other user can replace path: in its directory, and if path is
// a link, in the directory of its target.
func checkDirs(path string) error {
	target, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	dirs := []string{filepath.Dir(path)}
	if d := filepath.Dir(target); d != dirs[0] {
		dirs = append(dirs, d)
	}
	for _, dir := range dirs {
		if err := checkDir(dir); err != nil {
			return err
		}
	}
	return nil
}

func checkDir(dir string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if info.Mode().Perm()&0o002 != 0 {
		return fmt.Errorf("is in a directory that every user of this machine can write to; run chmod o-w %s", dir)
	}
	if err := checkOwner(info, dir); err != nil {
		return fmt.Errorf("its directory %w", err)
	}
	for parent := filepath.Dir(dir); ; parent = filepath.Dir(parent) {
		info, err := os.Stat(parent)
		if err != nil {
			return err
		}
		// In a sticky directory such as /tmp, only the owner of a file can rename it.
		if info.Mode().Perm()&0o002 != 0 && info.Mode()&fs.ModeSticky == 0 {
			return fmt.Errorf("is below a directory that every user of this machine can write to; run chmod o-w %s", parent)
		}
		if parent == filepath.Dir(parent) {
			return nil
		}
	}
}

func checkOwner(info fs.FileInfo, path string) error {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return nil
	}
	self := os.Geteuid()
	if stat.Uid == 0 || int(stat.Uid) == self {
		return nil
	}
	return fmt.Errorf("belongs to user %d, who could change it; it must belong to root or to the user that runs catena (%d): run chown %d %s",
		stat.Uid, self, self, path)
}

// Digest returns the SHA-256 of a file in hexadecimal.
func Digest(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	return digest(f)
}

func digest(r io.Reader) (string, error) {
	h := sha256.New()
	if _, err := io.Copy(h, r); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// checkDigest compares the open file with the digest that the configuration wants.
func checkDigest(f *os.File, want string) error {
	got, err := digest(io.NewSectionReader(f, 0, 1<<62))
	if err != nil {
		return fmt.Errorf("plugin binary %s: sha256: %w", f.Name(), err)
	}
	if !strings.EqualFold(got, want) {
		return fmt.Errorf("plugin binary %s: its sha256 is %s, the configuration wants %s; install the right file, or correct sha256 if this one is meant",
			f.Name(), got, want)
	}
	return nil
}
