package systemd_test

import (
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/catena-dev/catena/host/internal/systemd"
)

// manager is the socket of a systemd.
func manager(t *testing.T) (path string, next func() string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return path, func() string {
		t.Helper()
		buf := make([]byte, 4096)
		if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		n, err := conn.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		return string(buf[:n])
	}
}

func TestServiceOfSystemd(t *testing.T) {
	path, next := manager(t)
	for name, value := range map[string]string{
		"NOTIFY_SOCKET": path, "WATCHDOG_USEC": "3000000", "WATCHDOG_PID": strconv.Itoa(os.Getpid()),
		// The sockets are those of another process.
		"LISTEN_PID": "1", "LISTEN_FDS": "1", "LISTEN_FDNAMES": "https", "LISTEN_PIDFDID": "7",
	} {
		t.Setenv(name, value)
	}
	s, err := systemd.FromEnvironment()
	if err != nil || s.Watchdog != 3*time.Second || s.Listener != nil || !s.IsNotified() {
		t.Fatalf("got %+v, %v", s, err)
	}
	for _, name := range []string{"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "LISTEN_PIDFDID"} {
		if value, found := os.LookupEnv(name); found {
			t.Errorf("%s=%s is still there for other code and other processes", name, value)
		}
	}
	for _, c := range []struct{ message, want string }{
		{systemd.Ready, `READY=1`}, {systemd.Stopping, `STOPPING=1`}, {systemd.Alive, `WATCHDOG=1`},
		{systemd.Status("one\nline"), `STATUS=one line`}, {systemd.Reloading(), "RELOADING=1\nMONOTONIC_USEC=[1-9][0-9]*"},
	} {
		if err := s.Notify(c.message); err != nil {
			t.Fatal(err)
		}
		if got := next(); !regexp.MustCompile("^" + c.want + "$").MatchString(got) {
			t.Errorf("systemd got %q, want %q", got, c.want)
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := s.Notify(systemd.Ready); err == nil {
		t.Error("no error without systemd at the other end")
	}
}

func TestWithoutSystemd(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	s, err := systemd.FromEnvironment()
	if err != nil || s.Watchdog != 0 || s.Listener != nil || s.IsNotified() {
		t.Fatalf("got %+v, %v", s, err)
	}
	if err := s.Notify(systemd.Ready); err != nil {
		t.Error(err)
	}
}

func TestWrongWatchdog(t *testing.T) {
	t.Setenv("WATCHDOG_USEC", "soon")
	if s, err := systemd.FromEnvironment(); err == nil {
		t.Errorf("got %+v", s)
	}
}
