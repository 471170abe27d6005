package store

import (
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// openDir is a directory with that mode, whatever the umask is.
func openDir(t *testing.T, mode fs.FileMode) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "data")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, mode); err != nil {
		t.Fatal(err)
	}
	return dir
}

func modeOf(t *testing.T, path string) fs.FileMode {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Mode().Perm()
}

func lockDir(t *testing.T, dir string) *DirLock {
	t.Helper()
	lock, err := LockDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := lock.Release(); err != nil {
		t.Error(err)
	}
	return lock
}

func TestLockDirRemovesRights(t *testing.T) {
	t.Parallel()
	for _, mode := range []fs.FileMode{0o777, 0o755, 0o770} {
		dir := openDir(t, mode)
		if lock := lockDir(t, dir); !lock.WasOpen || modeOf(t, dir) != 0o700 {
			t.Errorf("mode %o: was open is %t, mode is %o afterwards", mode, lock.WasOpen, modeOf(t, dir))
		}
		// One that was in use already, with files in it, is closed, too.
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		if lock := lockDir(t, dir); !lock.WasOpen || modeOf(t, dir) != 0o700 {
			t.Errorf("mode %o, with files: was open is %t, mode is %o afterwards", mode, lock.WasOpen, modeOf(t, dir))
		}
		if lock := lockDir(t, dir); lock.WasOpen {
			t.Errorf("mode %o: the closed directory counts as open", mode)
		}
	}
}

func TestLockDirReportsAReplaceableDir(t *testing.T) {
	t.Parallel()
	above := openDir(t, 0o777)
	if lock := lockDir(t, filepath.Join(above, "data")); lock.Replaceable == nil || !strings.Contains(lock.Replaceable.Error(), "chmod o-w "+above) {
		t.Errorf("got %v", lock.Replaceable)
	}
	if os.Geteuid() == 0 {
		above := openDir(t, 0o755)
		if err := os.Chown(above, 1234, -1); err != nil {
			t.Fatal(err)
		}
		err := lockDir(t, filepath.Join(above, "data")).Replaceable
		if err == nil || !strings.Contains(err.Error(), "belongs to user 1234") {
			t.Errorf("got %v", err)
		}
	}
	if lock := lockDir(t, filepath.Join(openDir(t, 0o755), "data")); lock.Replaceable != nil {
		t.Error(lock.Replaceable)
	}
}

// A directory such as /tmp or a home stays open to its users, and no advice would close it.
func TestLockDirLeavesOtherDirsOpen(t *testing.T) {
	t.Parallel()
	dir := openDir(t, 0o755)
	if err := os.WriteFile(filepath.Join(dir, "letter.txt"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := LockDir(dir); err == nil || !strings.Contains(err.Error(), "letter.txt") || !strings.Contains(err.Error(), "choose another directory, such as "+filepath.Join(dir, "catena")) || strings.Contains(err.Error(), "chmod") {
		t.Errorf("error is %v", err)
	}
	if modeOf(t, dir) != 0o755 {
		t.Errorf("mode is %o afterwards", modeOf(t, dir))
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	lockDir(t, dir)
}

// Files of another user in the directory are not used: their keys would make that user the
// administrator, and a link as the lock could make any file be written.
func TestLockDirRefusesWhatOthersHaveMade(t *testing.T) {
	t.Parallel()
	const otherUser = 65534
	for _, name := range []string{"pki", "lock"} {
		dir, victim := openDir(t, 0o777), filepath.Join(t.TempDir(), "victim")
		lockDir(t, dir)
		path := filepath.Join(dir, name)
		if err := os.RemoveAll(path); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(victim, []byte("precious"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(victim, path); err != nil {
			t.Fatal(err)
		}
		if err := os.Lchown(path, otherUser, -1); err != nil {
			t.Skipf("only root can give a file away: %v", err)
		}
		for range 2 { // it is closed by the first, and still not good
			if _, err := LockDir(dir); err == nil || !strings.Contains(err.Error(), path+" belongs to user 65534") {
				t.Errorf("%s: error is %v", name, err)
			}
		}
		if b, err := os.ReadFile(victim); err != nil || string(b) != "precious" {
			t.Errorf("%s: the target of the link has become %q, %v", name, b, err)
		}
		if err := os.Chown(dir, otherUser, -1); err != nil {
			t.Fatal(err)
		}
		if _, err := LockDir(dir); err == nil || !strings.Contains(err.Error(), dir+" belongs to user 65534") {
			t.Errorf("the directory of another user: error is %v", err)
		}
	}
}

// The process that has the lock is known without taking it.
func TestHolder(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	if pid := Holder(dir); pid != 0 {
		t.Errorf("process %d has the lock of a directory without one", pid)
	}
	lock, err := LockDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if pid := Holder(dir); pid != os.Getpid() && runtime.GOOS == "linux" {
		t.Errorf("process %d has the lock, want %d", pid, os.Getpid())
	}
	if err := lock.Release(); err != nil {
		t.Fatal(err)
	}
	if pid := Holder(dir); pid != 0 {
		t.Errorf("process %d has a lock that was released", pid)
	}
}
