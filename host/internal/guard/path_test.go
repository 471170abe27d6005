package guard

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// touch makes a file.
func touch(t *testing.T, mode fs.FileMode, elements ...string) string {
	t.Helper()
	path := filepath.Join(elements...)
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	return path
}

func symlink(t *testing.T, target string, elements ...string) string {
	t.Helper()
	path := filepath.Join(elements...)
	if err := os.Symlink(target, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// giveGroup makes a file that of a group of no user's own, which only root can.
func giveGroup(t *testing.T, path string) {
	t.Helper()
	if err := os.Lchown(path, -1, 12345); err != nil {
		t.Skipf("only root can give a file to a group: %v", err)
	}
}

func TestCheckPath(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		// make returns the path to check, and what the error names.
		make func(t *testing.T, dir string) (path, culprit string)
		want string
	}{
		"file": {func(t *testing.T, dir string) (string, string) {
			return touch(t, 0o644, mkdir(t, 0o755, dir, "a"), "f"), ""
		}, ""},
		"file that the owner's own group can write": {func(t *testing.T, dir string) (string, string) {
			return touch(t, 0o664, mkdir(t, 0o775, dir, "a"), "f"), ""
		}, ""},
		"directory": {func(t *testing.T, dir string) (string, string) { return mkdir(t, 0o755, dir, "a"), "" }, ""},
		"file in a sticky directory": {func(t *testing.T, dir string) (string, string) {
			return touch(t, 0o644, mkdir(t, 0o777|fs.ModeSticky, dir, "a"), "f"), ""
		}, ""},
		"links": {func(t *testing.T, dir string) (string, string) {
			touch(t, 0o644, mkdir(t, 0o755, dir, "a", "b"), "f")
			symlink(t, "../a/./b/", dir, "a", "relative")
			return filepath.Join(symlink(t, filepath.Join(dir, "a", "relative"), dir, "absolute"), "f"), ""
		}, ""},
		"missing": {func(t *testing.T, dir string) (string, string) { return filepath.Join(dir, "f"), "" }, "no such file"},
		"link to itself": {func(t *testing.T, dir string) (string, string) {
			return symlink(t, "x", dir, "x"), ""
		}, "too many levels of symbolic links"},
		"file that all can write": {func(t *testing.T, dir string) (string, string) {
			f := touch(t, 0o646, dir, "f")
			return f, f
		}, "can be changed by every user of this machine; run chmod o-w CULPRIT"},
		"file that a group can write": {func(t *testing.T, dir string) (string, string) {
			f := touch(t, 0o664, dir, "f")
			giveGroup(t, f)
			return f, f
		}, "can be changed by the group 12345, which is not its owner's own; run chmod g-w CULPRIT"},
		"file of another user": {func(t *testing.T, dir string) (string, string) {
			f := touch(t, 0o644, dir, "f")
			giveAway(t, f)
			return f, f
		}, "belongs to user 65534, who could change it"},
		"sticky directory": {func(t *testing.T, dir string) (string, string) {
			d := mkdir(t, 0o777|fs.ModeSticky, dir, "a")
			return d, d
		}, "can be changed by every user of this machine; run chmod o-w CULPRIT"},
		"another user's file in a sticky directory": {func(t *testing.T, dir string) (string, string) {
			f := touch(t, 0o644, mkdir(t, 0o777|fs.ModeSticky, dir, "a"), "f")
			giveAway(t, f)
			return f, f
		}, "belongs to user 65534"},
		"below a directory that all can write to": {func(t *testing.T, dir string) (string, string) {
			d := mkdir(t, 0o777, dir, "a")
			return touch(t, 0o644, mkdir(t, 0o755, d, "b", "c"), "f"), d
		}, "is below a directory that can be changed by every user of this machine; run chmod o-w CULPRIT"},
		"below a directory that a group can write to": {func(t *testing.T, dir string) (string, string) {
			d := mkdir(t, 0o775, dir, "a")
			giveGroup(t, d)
			return touch(t, 0o644, mkdir(t, 0o755, d, "b"), "f"), d
		}, "is below a directory that can be changed by the group 12345, which is not its owner's own; run chmod g-w CULPRIT"},
		"below a directory of another user": {func(t *testing.T, dir string) (string, string) {
			d := mkdir(t, 0o755, dir, "a")
			f := touch(t, 0o644, mkdir(t, 0o755, d, "b"), "f")
			giveAway(t, d)
			return f, d
		}, "is below a directory that belongs to user 65534, who could change it"},
		"through a link of another user": {func(t *testing.T, dir string) (string, string) {
			touch(t, 0o644, mkdir(t, 0o755, dir, "a"), "f")
			link := symlink(t, "a", dir, "link")
			giveAway(t, link)
			return filepath.Join(link, "f"), link
		}, "is reached by the link CULPRIT, which belongs to user 65534"},
		"through a link into a directory that all can write to": {func(t *testing.T, dir string) (string, string) {
			d := mkdir(t, 0o777, dir, "open")
			touch(t, 0o644, mkdir(t, 0o755, d, "b"), "f")
			symlink(t, "open/b/..", dir, "second")
			return filepath.Join(symlink(t, "second", dir, "first"), "b", "f"), d
		}, "is below a directory that can be changed by every user of this machine; run chmod o-w CULPRIT"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path, culprit := c.make(t, mkdir(t, 0o755, t.TempDir(), "x"))
			err := CheckPath(path)
			if c.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if want := strings.ReplaceAll(c.want, "CULPRIT", culprit); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %q", err, want)
			}
			if name == "missing" && !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("got %v, want fs.ErrNotExist", err)
			}
		})
	}
}

// A group is its owner's own by name and number, and only if it has no other member.
func TestOwnGroup(t *testing.T) {
	t.Parallel()
	if !isOwnGroup(0, 0) {
		t.Error("root's group is not root's own")
	}
	for _, ids := range [][2]int{{0, 12345}, {12345, 12345}, {12345, 0}} {
		if isOwnGroup(ids[0], ids[1]) {
			t.Errorf("group %d is user %d's own", ids[1], ids[0])
		}
	}
	file := touch(t, 0o600, t.TempDir(), "group")
	if err := os.WriteFile(file, []byte("root:x:0:\nstaff:x:50:ada, bob\nada:x:1000:ada\nodd\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		gid  int
		want bool
	}{{0, false}, {50, true}, {1000, false}, {7, false}} {
		if got := hasOtherMembers(file, c.gid, "ada"); got != c.want {
			t.Errorf("group %d: got %t", c.gid, got)
		}
	}
}
