package system

import (
	"os"
	"path/filepath"
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

// SIGHUP ends no start, at any moment: the configuration is that of when it is read, or is read again.
func TestHangupDuringStart(t *testing.T) {
	t.Parallel()
	for _, after := range []time.Duration{20 * time.Millisecond, 50 * time.Millisecond, 80 * time.Millisecond, 120 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond} {
		t.Run(after.String(), func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			h := s.start(t, s.args()...)
			time.Sleep(after) // the moment is what is tested
			if err := h.Signal(syscall.SIGHUP); err != nil {
				t.Fatal(err)
			}
			h.awaitReady(t)
			h.stop(t)
		})
	}
}

// What has the place of a socket and is none is not deleted: the start ends with its path.
func TestFileInThePlaceOfASocket(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"admin.sock", "etcd.sock", "hello.host.sock"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			run, err := os.MkdirTemp("", "run") // a short path, whatever the name of the test is
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.RemoveAll(run) })
			path := filepath.Join(run, name)
			if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
				t.Fatal(err)
			}
			s.refused(t, runCatena(t, s.args("--set", "runtimeDir="+run)...), path+" is in the place of a socket, and is none: remove it")
			if text, err := os.ReadFile(path); string(text) != "mine" {
				t.Errorf("the file has %q: %v", text, err)
			}
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
	if r := runCatena(t, "status", "--data-dir", s.data); r.code != 0 {
		t.Fatalf("the shutdown delay is not waited for: %s", r.stderr)
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
