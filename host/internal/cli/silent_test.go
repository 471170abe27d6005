package cli

import (
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// TestSilentHost shows that no command waits for a host that is stopped for longer than it says, and that each says why it ends.
func TestSilentHost(t *testing.T) {
	t.Parallel()
	l := startLife(t, "")
	l.untilSignal(t, "HasBeenReady")
	data := filepath.Join(l.dir, "data")
	slow := make(chan error, 1)
	if err := l.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	go func() {
		_, _, err := run(t, "swap", "life", "--data-dir", data)
		slow <- err
	}()
	const most = 25 * time.Second // twice what it says, and then some
	var all sync.WaitGroup
	for _, args := range []string{
		"status", "status life -o json", "reload", "logs", "logs life --follow", "logs level life debug", "explain GET /life", "shadow report", "shadow stop",
		"swap life --promote", "swap life --timeout 1h", "config show", "config validate", "chain", "plugins", "lock --check", "token list", "snapshot save " + filepath.Join(l.dir, "snapshot.tar"),
		"upgrade", "upgrade plan life --binary /bin/true --timeout 1h", "shadow life --binary /bin/true",
	} {
		all.Go(func() {
			began := time.Now()
			_, _, err := run(t, append(strings.Fields(args), "--data-dir", data)...)
			if took := time.Since(began); took > most {
				t.Errorf("%s: ended after %s", args, took)
			}
			if err == nil || !strings.Contains(err.Error(), "has not responded within 10s: it is stopped, or has too much to do") || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s: %v", args, err)
			}
		})
	}
	// A bound of one's own is sooner.
	for args, want := range map[string]string{
		"swap life --timeout 1s": `stage "life" goes on with its old process: it has not been swapped within 1s (--timeout)`,
		"reload --timeout 1s":    "nothing has changed: the configuration has not been applied within 1s (--timeout)",
		"reload --timeout -1s":   "must not be negative",
	} {
		all.Go(func() {
			if _, _, err := run(t, append(strings.Fields(args), "--data-dir", data)...); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", args, err, want)
			}
		})
	}
	all.Wait()
	if err := <-slow; err == nil || !strings.Contains(err.Error(), "what becomes of the swap is not known") {
		t.Errorf("the swap: %v", err)
	}
	if err := l.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if out, errOut, err := run(t, "status", "--data-dir", data); err != nil {
		t.Errorf("afterwards: %v\n%s%s", err, out, errOut)
	}
}
