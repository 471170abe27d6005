package guard

import (
	"errors"
	"net"
)

// ErrNoPeers is why it is unknown who is at the other end of a connection: this system does not say.
// It is no errors.ErrUnsupported, which a failed system call of one that does can be, too.
var ErrNoPeers = errors.New("this system does not say who is at the other end of a connection")

// Peer is a process at the other end of a connection, and its user.
type Peer struct {
	PID, UID int
	conn     net.Conn
}
