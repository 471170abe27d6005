package guard

import (
	"errors"
	"net"
	"os"
)

// Listen opens a Unix socket for processes of this user and of root: its mode is 0600, and
// connections of other users are closed unread. Its directory must have mode 0700, since
// the mode of the socket is set a moment after it was made.
func Listen(path string) (net.Listener, error) {
	return listenWith(path, isOwn)
}

// ListenFor is Listen for a socket to which more users may connect, once its mode is changed. The
// directory goes on keeping out all for whom the socket is not mounted elsewhere.
func ListenFor(path string, also func(uid int) bool) (net.Listener, error) {
	return listenWith(path, func(uid int) bool { return isOwn(uid) || also(uid) })
}

func listenWith(path string, allowed func(uid int) bool) (net.Listener, error) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return listener{UnixListener: l, allowed: allowed}, nil
}

// isOwn reports whether a user is that of this process or root.
func isOwn(uid int) bool { return uid == 0 || uid == os.Geteuid() }

// listener accepts the connections of allowed users only, where the system tells whose they are.
type listener struct {
	*net.UnixListener
	allowed func(uid int) bool
}

// Accept returns the next connection that is allowed.
func (l listener) Accept() (net.Conn, error) {
	for {
		c, err := l.AcceptUnix()
		if err != nil {
			return nil, err
		}
		peer, err := PeerOf(c)
		if err == nil && l.allowed(peer.UID) || errors.Is(err, ErrNoPeers) {
			return c, nil
		}
		_ = c.Close()
	}
}
