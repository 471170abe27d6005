package guard

import (
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// PeerProcess returns the process that has opened a connection of a Unix socket; 0 on a system that
// does not tell.
func PeerProcess(c net.Conn) (int, error) {
	unixConn, ok := c.(*net.UnixConn)
	if !ok {
		return 0, fmt.Errorf("%T is not a connection of a Unix socket", c)
	}
	peer, err := credentials(unixConn)
	if err != nil {
		return 0, err
	}
	return int(peer.Pid), nil
}

// peerUser returns the user of the process at the other end of a connection.
func peerUser(c *net.UnixConn) (int, error) {
	peer, err := credentials(c)
	if err != nil {
		return 0, err
	}
	return int(peer.Uid), nil
}

func credentials(c *net.UnixConn) (*unix.Ucred, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	var peer *unix.Ucred
	var peerErr error
	err = raw.Control(func(fd uintptr) {
		peer, peerErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err != nil {
		return nil, err
	}
	return peer, peerErr
}
