//go:build linux

package process

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

// get returns the id of the process that serves the data socket.
func get(t *testing.T, path string) string {
	t.Helper()
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		},
	}}
	resp, err := client.Get("http://stage/")
	if err != nil {
		t.Error(err)
		return ""
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	return string(body)
}

// A request that arrives while no process runs is served by the next one.
func TestListenerOutlivesProcess(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "serves")
	first := f.start(t)
	if got := get(t, first.Socket()); got != strconv.Itoa(first.PID()) {
		t.Errorf("response %q of process %d", got, first.PID())
	}
	if err := first.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	response := make(chan string)
	go func() { response <- get(t, f.spec.Listener.Path()) }()
	second := f.start(t)
	if got := <-response; got != strconv.Itoa(second.PID()) {
		t.Errorf("response %q, not of process %d", got, second.PID())
	}
}

// A stage does not outlive a host that is killed, whether the kernel ends it or it watches the
// host itself, and what it leaves does not disturb the next start.
func TestHostIsKilled(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"good", "watches-parent"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, mode)
			host := exec.Command(f.spec.Binary, f.spec.RuntimeDir, f.spec.Binary, mode)
			host.Env = append(os.Environ(), envMode+"=host")
			host.Stderr = os.Stderr
			if err := f.spec.Listener.Close(); err != nil {
				t.Fatal(err)
			}
			out, err := host.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := host.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = host.Process.Kill() })
			line, err := bufio.NewReader(out).ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			pid, err := strconv.Atoi(strings.TrimSpace(line))
			if err != nil || !alive(pid) {
				t.Fatalf("stage %q is not there (%v)", line, err)
			}
			if err := host.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = host.Wait()
			eventually(t, "the stage ends with its host", func() bool { return !alive(pid) })
			if err := PrepareRuntimeDir(f.spec.RuntimeDir, []string{"test"}); err != nil {
				t.Fatal(err)
			}
			expectEmpty(t, f.spec.RuntimeDir)
		})
	}
}
