//go:build linux

package process

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"
)

// installed puts the test binary into a plugin directory.
func installed(t testing.TB) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), BinaryPrefix+"test")
	if err := os.Link(self, path); err != nil {
		data, err := os.ReadFile(self)
		if err != nil {
			t.Fatal(err)
		}
		write(t, path, data, 0o755)
	}
	return path
}

// patience is how long a test waits for what has to happen.
const patience = time.Minute

// fixture is what a test needs to start stages.
type fixture struct {
	spec Spec
	log  *log
}

func newFixture(t testing.TB, mode string) *fixture {
	t.Helper()
	dir, err := os.MkdirTemp("", "catena")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := PrepareRuntimeDir(dir, []string{"test"}); err != nil {
		t.Fatal(err)
	}
	ln, err := NewListener(dir, "test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ln.Close()
		expectEmpty(t, dir)
	})
	l := &log{}
	return &fixture{log: l, spec: Spec{
		Stage: "test", Binary: installed(t), Listener: ln, RuntimeDir: dir,
		Env:          map[string]string{envMode: mode, "GORACE": "atexit_sleep_ms=0"},
		StartTimeout: patience,
		Logger:       hclog.New(&hclog.LoggerOptions{Output: l, Level: hclog.Debug, Name: "test"}),
	}}
}

func expectEmpty(t testing.TB, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Error(err)
	}
	for _, e := range entries {
		t.Errorf("%s was left behind in the runtime directory", e.Name())
	}
}

func (f *fixture) start(t *testing.T) *Process {
	t.Helper()
	p, err := Start(t.Context(), f.spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := p.Kill(ctx); err != nil {
			t.Error(err)
		}
	})
	return p
}

// eventually fails the test if the condition does not become true.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !condition(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s", patience, what)
		}
	}
}

func TestStart(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "good")
	p := f.start(t)
	if got := p.Description().GetVersion(); got != "v0.1.0" {
		t.Errorf("version %q", got)
	}
	if err := p.Err(); err != nil {
		t.Errorf("running process has the error %v", err)
	}
	if p.PID() == 0 || p.Stage() != "test" || p.Binary() != f.spec.Binary {
		t.Errorf("pid %d, stage %q, binary %q", p.PID(), p.Stage(), p.Binary())
	}
	if err := p.Stop(t.Context()); err != nil {
		t.Errorf("stop: %v", err)
	}
	var exit *ExitError
	if err := p.Err(); !errors.As(err, &exit) || !exit.State.Success() {
		t.Errorf("after Stop: %v", err)
	}
}

func TestStartIsCancelled(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "silent")
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	began := time.Now()
	_, err := Start(ctx, f.spec)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if took := time.Since(began); took > patience/2 {
		t.Errorf("took %s", took)
	}
}

func TestStartLeaksNothing(t *testing.T) {
	before := goleak.IgnoreCurrent()
	fds := descriptors(t)
	for _, mode := range []string{"good", "exit", "garbage", "tcp", "protocol", "nostage", "dies", "forges", "refuses", "exits-after-handshake", "exits-after-handshake", "exits-after-handshake"} {
		t.Run(mode, func(t *testing.T) {
			f := newFixture(t, mode)
			if p, err := Start(t.Context(), f.spec); err == nil {
				if err := p.Stop(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	noLeaks(t, before)
	eventually(t, "no more descriptors than before", func() bool { return descriptors(t) <= fds })
}

// noLeaks waits for the ends of all goroutines but those that were there before.
func noLeaks(t *testing.T, before goleak.Option) {
	t.Helper()
	var err error
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		if err = goleak.Find(before); err == nil {
			return
		}
	}
	t.Error(err)
}

// go-plugin keeps a connection open when the process ends before it is connected.
func TestEndBeforeConnectLeaksNothing(t *testing.T) {
	before := goleak.IgnoreCurrent()
	f := newFixture(t, "good")
	file, err := f.spec.open()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	p := newProcess(f.spec.withDefaults())
	if err := p.startPlugin(t.Context(), file); err != nil {
		t.Fatal(err)
	}
	if err := p.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if p.newClient() == nil && p.describe(t.Context()) == nil {
		t.Error("a dead process has described itself")
	}
	p.dispose(t.Context())
	noLeaks(t, before)
}

func descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("no /proc")
	}
	return len(entries)
}

// A stage need not be an ELF program.
func TestStartScript(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "good")
	script := filepath.Join(t.TempDir(), BinaryPrefix+"test")
	f.spec.Env["PROGRAM"], f.spec.Binary = f.spec.Binary, write(t, script, []byte("#!/bin/sh\nexec \"$PROGRAM\"\n"), 0o755)
	if err := f.start(t).Stop(t.Context()); err != nil {
		t.Error(err)
	}
}

// What runs is the file that was checked, whatever its path names by then.
func TestCheckedFileIsStarted(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "good")
	sum, err := Digest(f.spec.Binary)
	if err != nil {
		t.Fatal(err)
	}
	spec := f.spec.withDefaults()
	spec.SHA256 = strings.ToUpper(sum)
	file, err := spec.open()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := os.Remove(spec.Binary); err != nil {
		t.Fatal(err)
	}
	write(t, spec.Binary, []byte("#!/bin/false\n"), 0o755)
	p := newProcess(spec)
	if err := p.start(t.Context(), file); err != nil {
		t.Fatal(p.abandon(t.Context(), err))
	}
	comm, err := os.ReadFile("/proc/" + strconv.Itoa(p.PID()) + "/comm")
	if err != nil || strings.TrimSpace(string(comm)) != "catena-stage-te" {
		t.Errorf("the process is called %q in ps (%v)", comm, err)
	}
	if err := p.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestWrongDigest(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "good")
	f.spec.SHA256 = strings.Repeat("0", 64)
	_, err := Start(t.Context(), f.spec)
	if err == nil || !strings.Contains(err.Error(), "the configuration wants 0000") {
		t.Errorf("got %v", err)
	}
}
