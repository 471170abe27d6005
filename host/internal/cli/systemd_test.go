package cli

import (
	"crypto/tls"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// manager is as much of systemd as a host has to do with.
type manager struct {
	conn   *net.UnixConn
	socket *net.TCPListener
	path   string
}

func newManager(t *testing.T) *manager {
	t.Helper()
	m := &manager{path: filepath.Join(t.TempDir(), "notify")}
	var err error
	if m.conn, err = net.ListenUnixgram("unixgram", &net.UnixAddr{Name: m.path, Net: "unixgram"}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.conn.Close() })
	if m.socket, err = net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.socket.Close() })
	return m
}

// start makes a host the service of the manager. It gets the id of its process from a shell, which becomes the host.
func (m *manager) start(t *testing.T, l *life) {
	t.Helper()
	socket, err := m.socket.File()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = socket.Close() })
	l.before = func(cmd *exec.Cmd) {
		cmd.Args = append([]string{"sh", "-c", `export LISTEN_PID=$$ WATCHDOG_PID=$$; exec "$0" "$@"`}, cmd.Args...)
		cmd.Path = "/bin/sh"
		cmd.ExtraFiles = []*os.File{socket} // descriptor 3
		cmd.Env = append(cmd.Env, "NOTIFY_SOCKET="+m.path, "WATCHDOG_USEC=200000", "LISTEN_FDS=1", "LISTEN_FDNAMES=catena.socket")
	}
	l.start(t)
}

// startLife starts a host with one stage.
func (m *manager) startLife(t *testing.T, stageConfig string) *life {
	t.Helper()
	l := newLife(t, "life")
	text := "apiVersion: catena.dev/v1alpha1\nkind: HostConfiguration\npluginDirs: [" + l.plugins + "]\nlog: {format: json}\nstages:\n  life:\n" +
		"    lock: off\n    isolation: off\n    env: {" + envLife + ": 'life:" + l.notes + "'}\n    config: {" + stageConfig + "}\n"
	if err := os.WriteFile(l.config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	m.start(t, l)
	return l
}

// until waits for a message that begins with a text, and returns those before it.
func (m *manager) until(t *testing.T, l *life, begin string) (before []string) {
	t.Helper()
	buf := make([]byte, 4096)
	for {
		_ = m.conn.SetReadDeadline(time.Now().Add(patienceOfTests))
		n, err := m.conn.Read(buf)
		if err != nil {
			t.Fatalf("no message %q: %v; there were %q\nlog:\n%s", begin, err, before, l.dump())
		}
		if strings.HasPrefix(string(buf[:n]), begin) {
			return before
		}
		before = append(before, string(buf[:n]))
	}
}

// The life of a service: systemd learns of each step, and the host serves on the socket that it gets.
func TestServiceOfSystemd(t *testing.T) {
	t.Parallel()
	m := newManager(t)
	l := m.startLife(t, "")
	if early := m.until(t, l, "READY=1"); slices.Contains(early, "WATCHDOG=1") {
		t.Errorf("alive before it is ready: %q", early)
	}
	m.until(t, l, "STATUS=serving: life")
	m.until(t, l, "WATCHDOG=1")

	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}, Timeout: patienceOfTests}
	defer client.CloseIdleConnections()
	response, err := client.Get("https://" + m.socket.Addr().String() + "/livez")
	if err != nil { // whatever the response, the host has sent it
		t.Fatalf("on the socket of systemd: %v", err)
	}
	_ = response.Body.Close()

	l.kill(t, syscall.SIGHUP)
	m.until(t, l, "RELOADING=1\nMONOTONIC_USEC=")
	m.until(t, l, "READY=1")

	for _, pid := range l.processes() {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	m.until(t, l, "STATUS=serving: life; life is ")
	m.until(t, l, "STATUS=serving: life")

	l.kill(t, syscall.SIGTERM)
	m.until(t, l, "STOPPING=1")
	l.untilEnd(t)
	if code := l.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("exit code %d\n%s", code, l.dump())
	}
}

// A server that does not get ready does not say so: Kubernetes' code in it would, as soon as it listens.
func TestServiceThatIsNotReady(t *testing.T) {
	t.Parallel()
	m := newManager(t)
	l := m.startLife(t, "hang: hook")
	l.until(t, "the post-start hook", func() bool { return strings.Contains(l.noted(), "hook") })
	l.kill(t, syscall.SIGTERM)
	if before := m.until(t, l, "STOPPING=1"); slices.Contains(before, "READY=1") || slices.Contains(before, "READY=1\n") {
		t.Errorf("ready without having been: %q", before)
	}
	l.untilEnd(t)
}

// A socket whose address is another than that of the configuration is an error that has both.
func TestSocketOfSystemdElsewhere(t *testing.T) {
	t.Parallel()
	m, l := newManager(t), newLife(t, "life")
	text := "apiVersion: catena.dev/v1alpha1\nkind: HostConfiguration\npluginDirs: [" + l.plugins + "]\napiserver: {secure-port: 7}\nstages: {life: {lock: off}}\n"
	if err := os.WriteFile(l.config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	m.start(t, l)
	l.untilEnd(t)
	if out, addr := l.dump(), m.socket.Addr().String(); l.cmd.ProcessState.ExitCode() != 1 ||
		!strings.Contains(out, l.config+":4: the socket that was passed to this process listens on "+addr+", and apiserver.secure-port is 7") {
		t.Errorf("exit code %d\n%s", l.cmd.ProcessState.ExitCode(), out)
	}
}
