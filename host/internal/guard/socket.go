package guard

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"
)

// Listen opens a Unix socket for processes of this user and of root: its mode is 0600, and
// connections of other users are closed unread. Its directory must have mode 0700, since
// the mode of the socket is set a moment after it was made.
func Listen(path string) (net.Listener, error) { return ListenFor(path, Own) }

// SecretName is a name for a socket that begins with a word and cannot be guessed. Where the kernel does not keep a
// process from connecting, and so from filling the backlog, not to know the path does.
func SecretName(word, suffix string) string {
	return word + "-" + strings.ToLower(rand.Text()[:secretLetters]) + suffix
}

// secretLetters have five bits each.
const secretLetters = 13

// ListenFor is Listen for the processes for which admit returns no error. Other users can connect once the mode of the socket is
// changed; the directory goes on keeping out all for whom the socket is not mounted elsewhere. Where the system does not
// tell who connects, admit is not asked.
func ListenFor(path string, admit func(Peer) error) (net.Listener, error) {
	if info, err := os.Lstat(path); err == nil && info.Mode()&fs.ModeSocket == 0 {
		return nil, fmt.Errorf("%s is in place of a socket, and is not a socket: remove it", path)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return listener{UnixListener: l, admit: admit}, nil
}

// Own returns an error for a process of another user than that of this one and root.
func Own(p Peer) error {
	if p.UID == 0 || p.UID == os.Geteuid() {
		return nil
	}
	return fmt.Errorf("process %d is of user %d", p.PID, p.UID)
}

// listener accepts the connections of processes that are admitted.
type listener struct {
	*net.UnixListener
	admit func(Peer) error
}

// Accept returns the next connection that is admitted.
func (l listener) Accept() (net.Conn, error) {
	for {
		c, err := l.AcceptUnix()
		if err != nil {
			return nil, err
		}
		peer, err := PeerOf(c)
		if err == nil && l.admit(peer) == nil || errors.Is(err, ErrNoPeers) {
			return c, nil
		}
		_ = c.Close()
	}
}
