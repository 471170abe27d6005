package apiserver

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A binary with several names is one file to install, and a copy of it is another.
func TestDiskSize(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	for _, name := range []string{"one", "copy"} {
		if err := os.WriteFile(path(name), make([]byte, 1000), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Link(path("one"), path("link")); err != nil {
		t.Fatal(err)
	}
	s := &Server{Binaries: []string{path("one"), path("link"), path("copy")}}
	if size, err := s.DiskSize(); err != nil || size != 2000 {
		t.Errorf("size %d, error %v", size, err)
	}
}

// A start does not wait for a process that has ended.
func TestStartOfAProcessThatEnds(t *testing.T) {
	t.Parallel()
	s := &Server{Name: "false", dir: t.TempDir(), Config: clientConfig(1), commands: []command{{"log", "false", nil}}}
	began := time.Now()
	_, err := s.Start(t.Context())
	if err == nil || !strings.Contains(err.Error(), "false has ended") {
		t.Errorf("error %v", err)
	}
	if took := time.Since(began); took > readyTimeout/2 {
		t.Errorf("took %v", took)
	}
}

// The processor time of a process still counts when it has ended, as that of a replaced stage does.
func TestCPUOfEndedProcesses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	done := filepath.Join(dir, "done")
	s := &Server{dir: dir}
	// The inner shell works and ends; the outer one becomes another program, which stays.
	script := `sh -c 'i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done'; : > "$0"; exec sleep 600`
	if err := s.run(command{"log", "sh", []string{"-c", script, done}}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	}()
	var while time.Duration
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(done); err == nil {
			break
		}
		if while = max(while, s.CPU()); time.Now().After(deadline) {
			t.Fatal("the process does not end")
		}
	}
	after := s.CPU()
	if after < 20*time.Millisecond || after < while-2*tick { // cutime and cstime are rounded down
		t.Errorf("%v while the process ran, %v after it had ended", while, after)
	}
	if s.PSS() == 0 {
		t.Error("no memory")
	}
}
