package cli

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// debug starts the stage "one" by hand. It is killed at the end, if it is still there.
func (l *life) debug(t *testing.T, dir string) (*exec.Cmd, <-chan error) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "--debug="+dir)
	cmd.Env = append(os.Environ(), envLife+"=one:"+l.notes)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	return cmd, ended
}

// A host that is told to attach uses the processes that were started by hand, one after
// the other, and leaves them alone when it ends.
func TestServeAttach(t *testing.T) {
	t.Parallel()
	l := newLife(t, "two")
	l.chain(t, "", "one config: {greeting: attached}", "two")
	dir := filepath.Join(l.dir, "debug")
	l.start(t, "--attach", "one="+dir)
	attached := func(pid int) {
		t.Helper()
		l.until(t, "attached process", func() bool {
			out, err := l.command(t, "status")
			if err != nil || !strings.Contains(out, "one is a process that was started by hand; this host never kills it") {
				return false
			}
			st := l.status(t).Stages[0]
			return st.Attached && st.PID == pid && st.State == "serving" && st.Binary == ""
		})
		if code, body := l.get(t, "/one"); code != 200 || body != "attached" {
			t.Errorf("%d %q from the process %d", code, body, pid)
		}
	}
	l.until(t, "host that waits", func() bool {
		return len(l.logged("catena", "waiting for a process of the stage to attach to", "stage")) > 0
	})
	first, ended := l.debug(t, dir)
	l.untilSignal(t, "HasBeenReady")
	attached(first.Process.Pid)
	if err := first.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-ended
	second, ended := l.debug(t, dir)
	attached(second.Process.Pid)

	l.kill(t, syscall.SIGTERM)
	<-l.ended
	if code := l.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("exit code %d: %s", code, l.dump())
	}
	select {
	case err := <-ended:
		t.Errorf("the process has ended with the host: %v", err)
	default:
	}
	if err := second.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Error(err)
	}
	<-ended
}
