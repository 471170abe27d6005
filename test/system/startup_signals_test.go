package system

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/catena-dev/catena/test/internal/cluster"
)

// SIGTERM during the start ends everything that has been started, at any moment. (SIGINT
// does nothing to a process in the background before that asks for it.)
func TestSignalDuringStart(t *testing.T) {
	t.Parallel()
	for _, after := range []time.Duration{200 * time.Millisecond, 600 * time.Millisecond, time.Second, 1500 * time.Millisecond} {
		t.Run(after.String(), func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			h := s.start(t, s.args()...)
			time.Sleep(after) // the moment is what is tested
			if err := h.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			h.ends(t)
			s.nothingLeft(t)
			s.works(t, s.args()...)
		})
	}
}

// SIGINT ends the host without waiting for a stage that does not respond.
func TestSignalWhileAStageHangs(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	h := s.start(t, s.args("--set", "stages.hello.env."+envFault+"=hang")...)
	eventually(t, "the stage runs", func() bool { return len(processesOf(s.data)) == 2 })
	if err := h.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	h.ends(t)
	s.nothingLeft(t)
	s.works(t, s.args()...)
}

// The second signal ends the host at once, whatever it waits for, and the stages with it.
func TestSecondSignal(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	h := s.start(t, s.args("--set", "apiserver.shutdown-delay-duration=1h")...)
	h.awaitReady(t)
	if err := h.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	h.await(t, "signal=ShutdownInitiated") // two signals that come at once are one
	select {
	case <-h.Done:
		t.Fatal("the shutdown delay was not waited for")
	case <-time.After(500 * time.Millisecond):
	}
	if err := h.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if text := h.gone(t); !strings.Contains(text, "\ncatena: ended by a second signal") || strings.Contains(text, "goroutine ") {
		t.Errorf("the host does not say how it has ended:\n%s", text)
	}
	eventually(t, "the stages are gone", func() bool { return len(processesOf(s.data)) == 0 })
	s.works(t, s.args()...) // also with the sockets that were left
}

// ends waits for the end of a host that was signaled.
func (h *host) ends(t *testing.T) {
	t.Helper()
	if text := h.gone(t); strings.Contains(text, "\ncatena: ") || strings.Contains(text, "goroutine ") {
		t.Errorf("an end that was asked for is no error:\n%s", text)
	}
}

// gone waits for the end of a host that was signaled, and returns what it has said.
func (h *host) gone(t *testing.T) string {
	t.Helper()
	h.stopped = true
	select {
	case <-h.Done:
	case <-time.After(patience):
		h.Kill()
		t.Fatalf("not ended within %s of the signal\n%s", patience, h.log())
	}
	return cluster.Tail(h.Log, 1000)
}

func TestHelp(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"", "serve", "chain", "config", "config validate", "config show", "plugins", "kubeconfig", "version", "completion"} {
		t.Run(command, func(t *testing.T) {
			t.Parallel()
			r := runCatena(t, append(strings.Fields(command), "--help")...)
			if r.code != 0 || r.stderr != "" || !strings.Contains(r.stdout, strings.TrimRight("Usage:\n  catena "+command, " ")) {
				t.Errorf("exit code %d, standard error %q, standard output\n%s", r.code, r.stderr, r.stdout)
			}
		})
	}
}

func TestCompletion(t *testing.T) {
	t.Parallel()
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if r := runCatena(t, "completion", shell); r.code != 0 || !strings.Contains(r.stdout, "catena") {
			t.Errorf("%s: exit code %d\n%s", shell, r.code, r.stderr)
		}
	}
	for _, tc := range []struct{ typed, want string }{
		{"s", "serve"}, {"serve --sec", "--secure-port"}, {"chain -o ", "json"}, {"config ", "validate"},
	} {
		args := append([]string{"__complete"}, strings.Split(tc.typed, " ")...)
		if r := runCatena(t, args...); r.code != 0 || !strings.Contains(r.stdout, tc.want) {
			t.Errorf("%q is completed with %q, want %q", tc.typed, r.stdout, tc.want)
		}
	}
}

func TestWrongCommandLine(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		line string
		want []string
	}{
		{"srve", []string{`no subcommand "srve"`, `did you mean "serve"?`}},
		{"serve now", []string{`"now"`}},
		{"serve --secure-prt 1", []string{"--secure-prt"}},
		{"serve --set x", []string{"x"}},
		{"chain -o xml", []string{"xml", "json"}},
	} {
		r := runCatena(t, strings.Fields(tc.line)...)
		if r.code <= 0 {
			t.Errorf("%q: exit code %d", tc.line, r.code)
		}
		for _, w := range tc.want {
			if !strings.Contains(r.stderr, w) {
				t.Errorf("%q: %q is not in %q", tc.line, w, r.stderr)
			}
		}
	}
}
