package process

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"
)

// installed puts the test binary into a plugin folder.
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
		if err := os.WriteFile(path, data, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

// log collects what the host's logger writes.
type log struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

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
	ln, err := NewListener(dir, "test", "0")
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
		Env:          map[string]string{envMode: mode},
		StartTimeout: 20 * time.Second,
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
		t.Errorf("%s was left behind in the runtime folder", e.Name())
	}
}

func (f *fixture) start(t *testing.T) *Process {
	t.Helper()
	p, err := Start(t.Context(), f.spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
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
	for deadline := time.Now().Add(10 * time.Second); !condition(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 10 s: %s", what)
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

// Every way in which a start fails says so in one line, with the stage's and the
// binary's name, and leaves no process, file or goroutine behind.
func TestStartFails(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		mode, name string
		timeout    time.Duration
		want       []string
		log        []string
	}{
		{mode: "exit", want: []string{"exited with status 3 before the handshake"},
			log: []string{"first words", "[ERROR] cannot read the token path=/nowhere"}},
		{mode: "panic", want: []string{"exited with status 2 before the handshake"}, log: []string{"panic: boom", "goroutine 1"}},
		{mode: "garbage", want: []string{`"Welcome to my stage!"`, "logs belong on standard error"}},
		{mode: "garbage-exit", want: []string{`"usage: ls [FILE]"`, "no Catena stage"}},
		{mode: "endless-line", want: []string{`"xxx`, "no Catena stage"}},
		{mode: "silent", timeout: 300 * time.Millisecond, want: []string{"did not send its handshake within 300ms", "startTimeout"}},
		{mode: "suspended", timeout: 300 * time.Millisecond, want: []string{"did not send its handshake within 300ms"}},
		{mode: "tcp", want: []string{"listens on tcp 127.0.0.1:1", "PLUGIN_UNIX_SOCKET_DIR"}},
		{mode: "refuses", want: []string{"certificate"}},
		{mode: "protocol", want: []string{"speaks version 9 of the stage protocol, this host speaks 1", "SDK"}},
		{mode: "netrpc", want: []string{"does not speak gRPC"}},
		{mode: "nostage", want: []string{"no Catena stage", "Describe"}},
		{mode: "good", name: "-", want: []string{"reports no name"}},
		{mode: "good", name: "other", want: []string{`reports the name "other"`, `"test"`}},
		{mode: "hangs", timeout: 2 * time.Second, want: []string{"did not answer Describe within 2s"}},
		{mode: "suspends", timeout: 2 * time.Second, want: []string{"did not answer Describe within 2s"}},
		{mode: "dies", want: []string{"exited with status 4 right after the handshake"}},
	} {
		t.Run(tc.mode+tc.name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, tc.mode)
			if tc.timeout != 0 {
				f.spec.StartTimeout = tc.timeout
			}
			if tc.name != "" {
				f.spec.Env[envName] = strings.Trim(tc.name, "-")
			}
			p, err := Start(t.Context(), f.spec)
			if err == nil {
				p.Kill(t.Context())
				t.Fatal("no error")
			}
			first, rest, _ := strings.Cut(err.Error(), "\n")
			for _, want := range append(tc.want, `stage "test"`, f.spec.Binary) {
				if !strings.Contains(first, want) {
					t.Errorf("%q does not say %q", first, want)
				}
			}
			for _, want := range tc.log {
				if !strings.Contains(rest, want) {
					t.Errorf("the lines after the first do not say %q:\n%s", want, rest)
				}
			}
			if n := strings.Count(rest, "\n"); n >= tailLines {
				t.Errorf("%d lines of log", n+1)
			}
			if !strings.HasPrefix(first, `stage "test": `) {
				t.Errorf("%q does not begin with the stage", first)
			}
			t.Log(err)
		})
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
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("took %s", took)
	}
}

func TestStartLeaksNothing(t *testing.T) {
	before := goleak.IgnoreCurrent()
	fds := descriptors(t)
	for _, mode := range []string{"good", "exit", "garbage", "tcp", "protocol", "nostage", "dies", "refuses"} {
		t.Run(mode, func(t *testing.T) {
			f := newFixture(t, mode)
			if p, err := Start(t.Context(), f.spec); err == nil {
				if err := p.Stop(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	goleak.VerifyNone(t, before)
	if now := descriptors(t); now > fds {
		t.Errorf("%d descriptors before, %d after", fds, now)
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("no /proc")
	}
	return len(entries)
}
