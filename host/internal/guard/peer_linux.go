package guard

import (
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// isAllowed reports whether the process at the other end of a connection is of this user or root.
func isAllowed(c *net.UnixConn) bool {
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	var peer *unix.Ucred
	var peerErr error
	err = raw.Control(func(fd uintptr) {
		peer, peerErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	return err == nil && peerErr == nil && (peer.Uid == 0 || int(peer.Uid) == os.Geteuid())
}
