package process

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A chain of directories that is deeper than a process may have descriptors, modes that keep their owner out, links and many files
// are removed, and nothing that a link leads to.
func TestRemoveTree(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	kept := filepath.Join(base, "kept")
	dir := filepath.Join(base, "dir")
	if err := errors.Join(os.Mkdir(kept, 0o700), os.WriteFile(filepath.Join(kept, "file"), nil, 0o600), os.Mkdir(dir, 0o700),
		os.MkdirAll(filepath.Join(dir, "a", "b", "c"), 0o700), os.Symlink(kept, filepath.Join(dir, "a", "link")), os.Symlink(kept, filepath.Join(dir, "moved-0")),
		os.Chmod(filepath.Join(dir, "a", "b", "c"), 0), os.Chmod(filepath.Join(dir, "a", "b"), 0o500), os.Chmod(filepath.Join(dir, "a"), 0)); err != nil {
		t.Fatal(err)
	}
	for i := range 300 {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), nil, 0); err != nil {
			t.Fatal(err)
		}
	}
	nest(t, dir, 5000)
	if err := removeTree(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it is still there: %v", err)
	}
	if _, err := os.Stat(filepath.Join(kept, "file")); err != nil {
		t.Error(err)
	}
	if err := removeTree(dir); err != nil {
		t.Errorf("a second time: %v", err)
	}
}

// nest makes directories in one another.
func nest(t *testing.T, dir string, depth int) {
	t.Helper()
	at, err := unix.Open(dir, unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	for range depth {
		if err := unix.Mkdirat(at, "d", 0o700); err != nil {
			t.Fatal(err)
		}
		next, err := unix.Openat(at, "d", unix.O_DIRECTORY, 0)
		if err != nil {
			t.Fatal(err)
		}
		_ = unix.Close(at)
		at = next
	}
	_ = unix.Close(at)
}

// What a stage has put into its control directory is removed with few descriptors, also while go-plugin ends its
// client, and its end does not wait for all of that.
func TestControlDirectoryIsRemovedFirst(t *testing.T) { // not in parallel, since it counts descriptors
	f := newFixture(t, "good")
	p := f.start(t)
	if err := configure(t.Context(), p, ""); err != nil {
		t.Fatal(err)
	}
	nest(t, p.dir, 20_000)
	descriptors := func() int {
		names, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Error(err)
		}
		return len(names)
	}
	before, stopped := descriptors(), make(chan error, 1)
	left := func() []string {
		names, err := filepath.Glob(filepath.Join(filepath.Dir(p.dir), controlDirPrefix+"*"))
		if err != nil {
			t.Error(err)
		}
		return names
	}
	began := time.Now()
	go func() { stopped <- p.Stop(t.Context()) }()
	most, tick := 0, time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for ended := false; !ended || len(left()) > 0; most = max(most, descriptors()) {
		select {
		case err := <-stopped:
			if ended = true; err != nil {
				t.Error(err)
			}
			if took := time.Since(began); took > killGrace {
				t.Errorf("the end took %s", took)
			}
		case <-tick.C:
			if time.Since(began) > time.Minute {
				t.Fatalf("%s are still there", left())
			}
		}
	}
	if most > before+100 {
		t.Errorf("%d descriptors were open, and %d before", most, before)
	}
}
