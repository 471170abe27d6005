//go:build linux

package isolation

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestMain(m *testing.M) {
	Dispatch()
	os.Exit(m.Run())
}

// The limit of open files is in force before the program begins, which cannot raise it.
func TestOpenFiles(t *testing.T) {
	t.Parallel()
	out := filepath.Join(t.TempDir(), "out")
	f, err := os.Create(out)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	attr := &os.ProcAttr{Env: []string{}, Files: []*os.File{nil, f, f}, Sys: &syscall.SysProcAttr{}}
	p := Process{Spec: Spec{Mode: Auto}, Binary: "/bin/sh", OpenFiles: 100}
	l, err := Detect(t.Context()).Prepare(p, attr.Env)
	if err != nil {
		t.Fatal(err)
	}
	path, argv, err := l.Wrap(p.Binary, []string{"sh", "-c", "ulimit -Sn; ulimit -Hn; ulimit -n 200 || echo refused"}, -1, attr)
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
	text, err := os.ReadFile(out)
	if got := string(text); err != nil || !strings.HasPrefix(got, "100\n100\n") || !strings.HasSuffix(got, "refused\n") {
		t.Errorf("the program prints %q (%v)", got, err)
	}
}

func TestDetect(t *testing.T) {
	m := Detect(t.Context())
	t.Logf("%+v", m)
}
