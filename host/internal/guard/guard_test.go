package guard

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// otherUser is a user of the machine who is neither root nor this one.
const otherUser = 65534

// giveAway makes something another user's, which only root can.
func giveAway(t *testing.T, path string) {
	t.Helper()
	if err := os.Lchown(path, otherUser, -1); err != nil {
		t.Skipf("only root can give a file away: %v", err)
	}
}

func mkdir(t *testing.T, mode fs.FileMode, elements ...string) string {
	t.Helper()
	dir := filepath.Join(elements...)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, mode); err != nil { // whatever the umask is
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

func TestDirIsClosed(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	for name, mode := range map[string]fs.FileMode{"all": 0o777, "read": 0o755, "group": 0o750, "traverse": 0o711, "sticky": 0o777 | fs.ModeSticky} {
		dir := mkdir(t, mode, base, name)
		if wasOpen, err := Dir(dir); err != nil || !wasOpen {
			t.Errorf("%s: was open is %t, error %v", name, wasOpen, err)
		}
		if got := modeOf(t, dir); got != 0o700 {
			t.Errorf("%s: mode is %o afterwards", name, got)
		}
		if wasOpen, err := Dir(dir); err != nil || wasOpen {
			t.Errorf("%s, again: was open is %t, error %v", name, wasOpen, err)
		}
	}
}

func TestDirIsMade(t *testing.T) {
	t.Parallel()
	above := filepath.Join(t.TempDir(), "a")
	dir := filepath.Join(above, "b")
	if wasOpen, err := Dir(dir); err != nil || wasOpen {
		t.Fatalf("was open is %t, error %v", wasOpen, err)
	}
	if modeOf(t, above) != 0o700 || modeOf(t, dir) != 0o700 {
		t.Errorf("modes are %o and %o", modeOf(t, above), modeOf(t, dir))
	}
}

func TestDirFollowsALink(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	dir, link := mkdir(t, 0o755, base, "dir"), filepath.Join(base, "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	if _, err := Dir(link); err != nil || modeOf(t, dir) != 0o700 {
		t.Errorf("error %v, mode of the directory %o", err, modeOf(t, dir))
	}
}

// refused checks that a directory is not taken, and left as it is.
func refused(t *testing.T, dir, want string) {
	t.Helper()
	before := modeOf(t, dir)
	if _, err := Dir(dir); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error is %v, want it to contain %q", err, want)
	}
	if got := modeOf(t, dir); got != before {
		t.Errorf("mode was %o, is %o", before, got)
	}
}

func TestDirThatEveryUserCanReplace(t *testing.T) {
	t.Parallel()
	above := mkdir(t, 0o777, t.TempDir(), "above")
	err := CheckAbove(mkdir(t, 0o700, above, "between", "dir"))
	if err == nil || !strings.Contains(err.Error(), "chmod o-w "+above) {
		t.Errorf("got %v", err)
	}
	if err := CheckAbove(mkdir(t, 0o700, t.TempDir(), "dir")); err != nil {
		t.Error(err)
	}
}

func TestDirOfAnotherUser(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	dir := mkdir(t, 0o755, base, "dir")
	giveAway(t, dir)
	refused(t, dir, "belongs to user 65534")

	link := filepath.Join(base, "link")
	if err := os.Symlink(mkdir(t, 0o755, base, "mine"), link); err != nil {
		t.Fatal(err)
	}
	giveAway(t, link)
	refused(t, link, "belongs to user 65534")
}

func TestEntriesOfAnotherUser(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	mkdir(t, 0o700, dir, "mine")
	if err := CheckEntries(dir); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"pki", "link"} {
		path := filepath.Join(dir, name)
		if err := os.Symlink("/etc/passwd", path); err != nil {
			t.Fatal(err)
		}
		giveAway(t, path)
	}
	err := CheckEntries(dir)
	for _, name := range []string{"pki", "link"} {
		if err == nil || !strings.Contains(err.Error(), filepath.Join(dir, name)+" belongs to user 65534") {
			t.Errorf("%s: error is %v", name, err)
		}
	}
}

func TestFileIsClosed(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "key")
	if err := File(path); err != nil {
		t.Errorf("no file: %v", err)
	}
	for _, mode := range []fs.FileMode{0o644, 0o666, 0o640, 0o400, 0o600} {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		if err := File(path); err != nil || modeOf(t, path) != mode&0o700 {
			t.Errorf("mode %o: error %v, mode is %o afterwards", mode, err, modeOf(t, path))
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

func TestFileOfAnotherUser(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	giveAway(t, path)
	if err := File(path); err == nil || !strings.Contains(err.Error(), path+" belongs to user 65534") {
		t.Errorf("error is %v", err)
	}
}
