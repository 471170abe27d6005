//go:build linux

package isolation

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/catena-dev/catena/host/internal/bounds"
)

func TestMain(m *testing.M) {
	Dispatch()
	os.Exit(m.Run())
}

// The limit of open files is in force before the program begins, which cannot raise it. One that may have many has as many as this process.
func TestOpenFiles(t *testing.T) {
	t.Parallel()
	var own unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &own); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		files uint64
		many  bool
		want  uint64
	}{{100, false, 100}, {100, true, 100}, {0, false, min(bounds.OpenFiles, own.Max)}, {0, true, own.Max}} {
		p := Process{Spec: Spec{Mode: Auto}, Binary: "/bin/sh", OpenFiles: tc.files, ManyFiles: tc.many}
		got := printed(t, p, fmt.Sprintf("ulimit -Hn; ulimit -n %d || echo refused", own.Max+1))
		if want := fmt.Sprintln(tc.want); !strings.HasPrefix(got, want) || !strings.HasSuffix(got, "refused\n") && tc.want < own.Max {
			t.Errorf("%+v: the program prints %q", tc, got)
		}
	}
}

// printed returns what an isolated shell prints.
func printed(t *testing.T, p Process, script string) string {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	attr := &os.ProcAttr{Env: []string{}, Files: []*os.File{nil, f, f}, Sys: &syscall.SysProcAttr{}}
	l, err := Detect(t.Context()).Prepare(p, attr.Env)
	if err != nil {
		t.Fatal(err)
	}
	path, argv, err := l.Wrap(p.Binary, []string{"sh", "-c", script}, -1, attr)
	if err != nil {
		t.Fatal(err)
	}
	process, err := os.StartProcess(path, argv, attr)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Wait(); err != nil {
		t.Error(err)
	}
	if _, err := process.Wait(); err != nil {
		t.Error(err)
	}
	text, err := os.ReadFile(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestDetect(t *testing.T) {
	m := Detect(t.Context())
	t.Logf("%+v", m)
}
