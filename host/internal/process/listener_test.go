package process

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

func TestPrepareRuntimeDir(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "run")
	if err := PrepareRuntimeDir(dir, nil); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "plugin-dir123", "plugin456"), nil, 0o600)
	write(t, filepath.Join(dir, "keep"), nil, 0o600)
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "old.sock"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	ln.SetUnlinkOnClose(false)
	ln.Close()
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := PrepareRuntimeDir(dir, nil); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(dir)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("mode %s (%v)", info.Mode(), err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 || entries[0].Name() != "keep" {
		t.Errorf("left: %v (%v)", entries, err)
	}
}

func TestPrepareRuntimeDirRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	target, to := filepath.Join(dir, "target"), filepath.Join(dir, "link")
	if err := os.Mkdir(target, 0o755); err != nil {
		t.Fatal(err)
	}
	link(t, target, to)
	if err := PrepareRuntimeDir(to, nil); err == nil || !strings.Contains(err.Error(), "is a link") {
		t.Errorf("link: %v", err)
	}
	deep := "/" + strings.Repeat("d", 70)
	if err := PrepareRuntimeDir(deep, nil); err == nil || !strings.Contains(err.Error(), "set runtimeDir to a directory with at most 69") {
		t.Errorf("deep: %v", err)
	}
	long := strings.Repeat("s", 60)
	if err := PrepareRuntimeDir("/"+strings.Repeat("d", 60), []string{"a", long}); err == nil || !strings.Contains(err.Error(), "at most 22") {
		t.Errorf("long name: %v", err)
	}
	if _, err := os.Stat(deep); err == nil {
		t.Error("a refused directory was made")
	}
}

func TestListener(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ln, err := NewListener(dir, "core")
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(ln.Path())
	name := regexp.MustCompile(`^core-[a-z2-7]{13}\.sock$`)
	if err != nil || info.Mode().Perm() != 0o600 || !name.MatchString(filepath.Base(ln.Path())) {
		t.Errorf("%s: mode %s (%v)", ln.Path(), info.Mode(), err)
	}
	_, err = NewListener(filepath.Join(dir, "none"), "core")
	if err == nil || !strings.Contains(err.Error(), `stage "core": data socket`) {
		t.Errorf("without a directory: %v", err)
	}
	if err := ln.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(ln.Path()); !os.IsNotExist(err) {
		t.Errorf("after close: %v", err)
	}
	if _, err := NewListener(dir, strings.Repeat("s", 107)); err == nil || !strings.Contains(err.Error(), "set runtimeDir") {
		t.Errorf("long path: %v", err)
	}
}

// What a process has done to the socket that it has inherited does not keep the next one from serving.
func TestNextProcessCanAccept(t *testing.T) {
	t.Parallel()
	for name, harm := range map[string]func(fd int) error{
		"shut down":             func(fd int) error { return unix.Shutdown(fd, unix.SHUT_RDWR) },
		"shut down for reading": func(fd int) error { return unix.Shutdown(fd, unix.SHUT_RD) },
		"a backlog of one":      func(fd int) error { return unix.Listen(fd, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, err := NewListener(t.TempDir(), "test")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			before, err := l.file(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer before.Close()
			if err := harm(int(before.Fd())); err != nil {
				t.Fatal(err)
			}
			after, err := l.file(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer after.Close()
			for range 3 {
				conn, err := net.Dial("unix", l.Path())
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
			}
		})
	}
}

// A process that has inherited the socket can make it block, for the host too.
func TestRefuseOfABlockingSocket(t *testing.T) {
	t.Parallel()
	l, err := NewListener(t.TempDir(), "test")
	if err != nil {
		t.Fatal(err)
	}
	inherited, err := l.file(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer inherited.Close()
	block := func() {
		if err := unix.SetNonblock(int(inherited.Fd()), false); err != nil {
			t.Error(err)
		}
	}
	block()
	waiting, err := net.Dial("unix", l.Path())
	if err != nil {
		t.Fatal(err)
	}
	defer waiting.Close()
	l.Refuse()
	if text, err := io.ReadAll(waiting); err != nil || !strings.Contains(string(text), l.Refusal()) {
		t.Errorf("what waits gets %q (%v)", text, err)
	}

	// One that is left, and makes it block at the worst moment, does not keep the host either.
	stop := make(chan struct{})
	var others sync.WaitGroup
	others.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				block()
			}
		}
	})
	for range 20 {
		l.Refuse()
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	close(stop)
	others.Wait()
}
