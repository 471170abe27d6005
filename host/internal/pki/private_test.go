package pki_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/catena-dev/catena/host/internal/pki"
)

// An older start, a copy or a backup may have left files that other users can read.
func TestEnsureClosesWhatIsOpen(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, err := pki.Ensure(pki.Options{Dir: dir}); err != nil {
		t.Fatal(err)
	}
	paths, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(paths) != 12 {
		t.Fatalf("files are %v, %v", paths, err)
	}
	for i, path := range append(paths, dir) {
		if err := os.Chmod(path, []os.FileMode{0o777, 0o755, 0o744}[i%3]); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := pki.Ensure(pki.Options{Dir: dir}); err != nil {
		t.Fatal(err)
	}
	for _, path := range append(paths, dir) {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%s is open: %v, %v", path, info.Mode(), err)
		}
	}
}

// Keys that another user has made are keys that another user has.
func TestEnsureRefusesKeysOfOthers(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"ca.key", "sa.key", "apiserver.crt", "."} {
		dir := filepath.Join(t.TempDir(), "pki")
		if _, err := pki.Ensure(pki.Options{Dir: dir}); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, name)
		if err := os.Chown(path, 65534, -1); err != nil {
			t.Skipf("only root can give a file away: %v", err)
		}
		if _, err := pki.Ensure(pki.Options{Dir: dir}); err == nil || !strings.Contains(err.Error(), path+" belongs to user 65534") {
			t.Errorf("%s: error is %v", name, err)
		}
	}
}
