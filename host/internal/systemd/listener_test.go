package systemd

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// filer is a socket of package net.
type filer interface {
	File() (*os.File, error)
	Close() error
}

// passed returns the file of a socket, as systemd would pass it.
func passed(t *testing.T, socket filer, err error) *os.File {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = socket.Close() })
	f, err := socket.File()
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func tcp(t *testing.T) (*os.File, string) {
	t.Helper()
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	return passed(t, l, err), l.Addr().String()
}

func TestListener(t *testing.T) {
	t.Parallel()
	if l, err := listener(nil); l != nil || err != nil {
		t.Errorf("no socket: %v, %v", l, err)
	}
	f, addr := tcp(t)
	l, err := listener([]*os.File{f})
	if err != nil || l.Addr().String() != addr {
		t.Fatalf("got %v, %v, want %s", l, err, addr)
	}
	defer l.Close()
	client, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
}

func TestWrongSockets(t *testing.T) {
	t.Parallel()
	first, addr := tcp(t)
	second, _ := tcp(t)
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	connection := passed(t, conn.(*net.TCPConn), nil)
	packets, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	udp := passed(t, packets, err)
	path := filepath.Join(t.TempDir(), "socket")
	unix, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	local := passed(t, unix, err)
	file, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		files []*os.File
		want  string
	}{
		"two":          {[]*os.File{first, second}, "systemd has passed 2 sockets"},
		"a connection": {[]*os.File{connection}, "a socket that does not listen"},
		"UDP":          {[]*os.File{udp}, "a socket that does not listen"},
		"a directory":  {[]*os.File{file}, "a socket that does not listen"},
		"Unix":         {[]*os.File{local}, "the socket " + path},
	} {
		l, err := listener(c.files)
		if !errors.Is(err, errNoListener) || !strings.Contains(err.Error(), c.want) || l != nil {
			t.Errorf("%s: %v, %v, want %s", name, l, err, c.want)
		}
		for _, f := range c.files {
			if f.Close() == nil {
				t.Errorf("%s: %s is still open", name, f.Name())
			}
		}
	}
}
