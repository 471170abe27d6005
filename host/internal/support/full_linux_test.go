package support

import (
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A full disk is one error, and leaves nothing behind.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Skipf("nothing can be mounted: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	noise := make([]byte, 1<<20)
	_, _ = rand.Read(noise)
	path := filepath.Join(dir, "a.tar.gz")
	_, err := Create(path, "dir", time.Now(), []Result{{Part: Part{Name: "noise"}, Content: noise}})
	if !errors.Is(err, unix.ENOSPC) {
		t.Errorf("got %v", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
