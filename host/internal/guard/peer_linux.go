package guard

import (
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// PeerOf returns who is at the other end of a connection of a Unix socket. The error is
// ErrNoPeers on a system that does not say.
func PeerOf(c net.Conn) (Peer, error) {
	local, ok := c.(*net.UnixConn)
	if !ok {
		return Peer{}, fmt.Errorf("%T is not a connection of a Unix socket", c)
	}
	raw, err := local.SyscallConn()
	if err != nil {
		return Peer{}, err
	}
	var peer *unix.Ucred
	var peerErr error
	err = raw.Control(func(fd uintptr) {
		peer, peerErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err != nil {
		return Peer{}, err
	}
	if peerErr != nil {
		return Peer{}, fmt.Errorf("peer credentials: %w", peerErr)
	}
	return Peer{PID: int(peer.Pid), UID: int(peer.Uid)}, nil
}
