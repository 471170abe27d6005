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
	got, err := digest(section(f))
	if err != nil {
		return fmt.Errorf("plugin binary %s: sha256: %w", f.Name(), err)
	}
	if !strings.EqualFold(got, want) {
		return fmt.Errorf("plugin binary %s: its sha256 is %s, the configuration wants %s; install the right file, or correct sha256 if this one is meant",
			f.Name(), got, want)
	}
	return nil
}
