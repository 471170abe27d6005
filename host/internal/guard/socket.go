package guard

import (
	"errors"
	"net"
	"os"
)

// Listen opens a Unix socket for processes of this user, and of root: its mode lets
// nobody else connect, and connections of others are closed unread. The folder has to
// be closed to others, since the mode is set a moment after the socket is there.
func Listen(path string) (net.Listener, error) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return listener{UnixListener: l, allowed: isAllowed}, nil
}

// listener is a socket that knows who calls.
type listener struct {
	*net.UnixListener
	allowed func(*net.UnixConn) bool
}

// Accept returns the next connection that is allowed.
func (l listener) Accept() (net.Conn, error) {
	for {
		c, err := l.AcceptUnix()
		if err != nil {
			return nil, err
		}
		if l.allowed(c) {
			return c, nil
		}
		_ = c.Close()
	}
}
