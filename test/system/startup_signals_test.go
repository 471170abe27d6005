package system

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
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

// SIGHUP ends no start, at any moment from when the program runs code of its own: the configuration is that of when it is read, or is
// read again.
func TestHangupDuringStart(t *testing.T) {
	t.Parallel()
	for _, after := range []time.Duration{0, 30 * time.Millisecond, 60 * time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond} {
		t.Run(after.String(), func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			h := s.start(t, s.args()...)
			// Of the time that the system takes to load the program nothing is promised.
			eventually(t, "the program runs", func() bool { return ignoresHangup(t, h.PID()) || h.log() != "" })
			time.Sleep(after) // the moment is what is tested
			if err := h.Signal(syscall.SIGHUP); err != nil {
				t.Fatal(err)
			}
			h.awaitReady(t)
			h.stop(t)
		})
	}
}

// ignoresHangup reports whether a process ignores SIGHUP.
func ignoresHangup(t *testing.T, pid int) bool {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, mask, _ := strings.Cut(string(status), "SigIgn:\t")
	mask, _, _ = strings.Cut(mask, "\n")
	signals, err := strconv.ParseUint(mask, 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	return signals&(1<<(syscall.SIGHUP-1)) != 0
}

// A start ignores SIGHUP before the types of Kubernetes are registered, which is what takes time.
func TestHangupBeforeInitialization(t *testing.T) {
	t.Parallel()
	bin, err := cluster.Bin()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(filepath.Join(bin, "catena"), "version")
	cmd.Env = append(cluster.Environ(), "GODEBUG=inittrace=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatal(err)
	}
	hangup, scheme := bytes.Index(out, []byte("init github.com/catena-dev/catena/host/internal/hangup ")), bytes.Index(out, []byte("init k8s.io/client-go/kubernetes/scheme "))
	if hangup < 0 || scheme < hangup {
		t.Errorf("SIGHUP is ignored (%d) after Kubernetes' types are registered (%d):\n%s", hangup, scheme, out)
	}
}

// What has the place of a socket and is none is not deleted: the start ends with its path.
func TestFileInThePlaceOfASocket(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	run, err := os.MkdirTemp("", "run") // a short path, whatever the name of the test is
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(run) })
	path := filepath.Join(run, "admin.sock")
	if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.refused(t, runCatena(t, s.args("--set", "runtimeDir="+run)...), path+" is in place of a socket, and is not a socket: remove it")
	if text, err := os.ReadFile(path); string(text) != "mine" {
		t.Errorf("the file has %q: %v", text, err)
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
