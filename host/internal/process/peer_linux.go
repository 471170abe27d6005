package process

import (
	"fmt"
	"net"

	"github.com/catena-dev/catena/host/internal/guard"
)

// peerOf returns the id of the process at the other end of a connection. It must be one of
// that user.
func peerOf(conn *net.UnixConn, uid int) (pid int, err error) {
	peer, err := guard.PeerOf(conn)
	if err == nil && peer.UID != uid {
		err = fmt.Errorf("process %d of user %d listens at %s; it must be one of user %d", peer.PID, peer.UID, conn.RemoteAddr(), uid)
	}
	return peer.PID, err
}

// checkListener checks that the process at the other end has this id and user.
func checkListener(conn *net.UnixConn, pid, uid int) error {
	got, err := peerOf(conn, uid)
	if err == nil && got != pid {
		err = fmt.Errorf("%s does not belong to process %d, which was launched, but to process %d", conn.RemoteAddr(), pid, got)
	}
	return err
}
