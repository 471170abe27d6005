package system

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/catena-dev/catena/test/internal/cluster"
)

// site is a place where "catena serve" runs a chain of one test stage, hello: without
// Kubernetes' stages a start takes half a second.
type site struct {
	// data is the data directory, plugins the plugin directory.
	data, plugins string
	// config is the file of --config.
	config string
}

func newSite(t *testing.T) *site {
	t.Helper()
	return &site{
		data: filepath.Join(t.TempDir(), "data"), plugins: plugins(t, "hello"),
		config: helloConfig(t),
	}
}

// args is a command line that works; more settings follow.
func (s *site) args(more ...string) []string {
	args := []string{"serve", "--config", s.config, "--data-dir", s.data,
		"--set", "pluginDirs=" + s.plugins, "--bind-address", "127.0.0.1", "--secure-port", "0"}
	return append(args, more...)
}

// run is one run of bin/catena that ends by itself.
type run struct {
	code           int
	stdout, stderr string
	took           time.Duration
}

// startTime is how long a start that fails may take on a busy machine.
const startTime = 90 * time.Second

// catenaCommand is bin/catena with arguments, to be run in the root of the module.
func catenaCommand(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	bin, err := cluster.Bin()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(bin, "catena"), args...)
	cmd.Dir, cmd.Env = cluster.Root(), cluster.Environ()
	cmd.SysProcAttr = cluster.Attributes()
	return cmd
}

// runCatena runs bin/catena until it ends.
func runCatena(t *testing.T, args ...string) run {
	t.Helper()
	return runCommand(t, catenaCommand(t, args...))
}

func runCommand(t *testing.T, cmd *exec.Cmd) run {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.WaitDelay = time.Second
	began := time.Now()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	kill := time.AfterFunc(startTime, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	defer kill.Stop()
	err := cmd.Wait()
	r := run{code: cmd.ProcessState.ExitCode(), stdout: stdout.String(), stderr: stderr.String(), took: time.Since(began)}
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, r.stderr)
	}
	if r.took >= startTime {
		t.Fatalf("%v has not ended within %s\n%s", cmd.Args, startTime, r.stderr)
	}
	return r
}

// refused checks that a start failed as it should: with one error that says all of
// want, and without leaving a process.
func (s *site) refused(t *testing.T, r run, want ...string) {
	t.Helper()
	if r.code <= 0 {
		t.Errorf("exit code %d", r.code)
	}
	for _, w := range want {
		if !strings.Contains(r.stderr, w) {
			t.Errorf("%q is not in the error", w)
		}
	}
	if n := strings.Count("\n"+r.stderr, "\ncatena: "); n != 1 {
		t.Errorf("%d errors of catena, want one", n)
	}
	if strings.Contains(r.stderr, "goroutine ") {
		t.Error("a stack trace is no error message")
	}
	if strings.Contains(r.stdout, "ready after") {
		t.Error("the server became ready")
	}
	s.nothingLeft(t)
	if t.Failed() {
		t.Logf("standard error of the start, which took %s:\n%s", r.took, r.stderr)
	}
}

// nothingLeft checks that no process of the site runs, and that no socket is left.
func (s *site) nothingLeft(t *testing.T) {
	t.Helper()
	if left := processesOf(s.data); len(left) > 0 {
		t.Errorf("processes are left: %v", left)
		for pid := range left {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	if left := socketsBelow(s.data); len(left) > 0 {
		t.Errorf("sockets are left: %q", left)
	}
}

// processesOf finds the processes whose command line or environment has a directory in
// it: a host has its data directory, a stage the directory of its control socket.
func processesOf(dir string) map[int]string {
	found := map[int]string{}
	paths, _ := filepath.Glob("/proc/[0-9]*")
	for _, path := range paths {
		command, _ := os.ReadFile(filepath.Join(path, "cmdline"))
		environment, _ := os.ReadFile(filepath.Join(path, "environ"))
		if !bytes.Contains(command, []byte(dir)) && !bytes.Contains(environment, []byte(dir)) {
			continue
		}
		var pid int
		if _, err := fmt.Sscanf(filepath.Base(path), "%d", &pid); err == nil && pid != os.Getpid() {
			found[pid] = string(bytes.ReplaceAll(command, []byte{0}, []byte{' '}))
		}
	}
	return found
}

func socketsBelow(dir string) []string {
	var found []string
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type() == fs.ModeSocket {
			found = append(found, path)
		}
		return nil
	})
	return found
}

// works checks that the site starts with the given command line, becomes ready, and
// ends as it should.
func (s *site) works(t *testing.T, args ...string) {
	t.Helper()
	p := s.start(t, args...)
	p.awaitReady(t)
	p.stop(t)
	s.nothingLeft(t)
}

// host is a running "catena serve".
type host struct {
	*cluster.Process
	stopped bool
}

// start runs the site in the background until the test ends.
func (s *site) start(t *testing.T, args ...string) *host {
	t.Helper()
	bin, err := cluster.Bin()
	if err != nil {
		t.Fatal(err)
	}
	p, err := cluster.StartProcess(t.TempDir(), "catena", filepath.Join(bin, "catena"), args...)
	if err != nil {
		t.Fatal(err)
	}
	h := &host{Process: p}
	t.Cleanup(func() {
		if !h.stopped {
			p.Kill()
		}
		if t.Failed() {
			t.Logf("log of catena:\n%s", h.log())
		}
	})
	return h
}

func (h *host) log() string { return cluster.Tail(h.Log, 100) }

func (h *host) awaitReady(t *testing.T) {
	t.Helper()
	h.await(t, "ready after")
}

// await waits until the host has printed a text.
func (h *host) await(t *testing.T, text string) {
	t.Helper()
	eventually(t, fmt.Sprintf("%q is printed", text), func() bool {
		select {
		case <-h.Done:
			t.Fatalf("catena has ended before it printed %q:\n%s", text, h.log())
		default:
		}
		b, _ := os.ReadFile(h.Log)
		return bytes.Contains(b, []byte(text))
	})
}

// stop ends the host in order.
func (h *host) stop(t *testing.T) {
	t.Helper()
	h.stopped = true
	if err := h.Stop(); err != nil {
		t.Errorf("%v\n%s", err, h.log())
	}
}
