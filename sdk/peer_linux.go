package sdk

import (
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// checkPeer checks who has opened a connection: the process with this id, of this user.
func checkPeer(conn net.Conn, pid, uid int) error {
	local, ok := conn.(*net.UnixConn)
	if !ok {
		return fmt.Errorf("%T is no connection of a Unix socket", conn)
	}
	raw, err := local.SyscallConn()
	if err != nil {
		return err
	}
	var peer *unix.Ucred
	var peerErr error
	err = raw.Control(func(fd uintptr) {
		peer, peerErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err != nil {
		return err
	}
	if peerErr != nil {
		return fmt.Errorf("who has connected: %w", peerErr)
	}
	if int(peer.Pid) != pid || int(peer.Uid) != uid {
		return fmt.Errorf("process %d of user %d is not the host, which is process %d of user %d", peer.Pid, peer.Uid, pid, uid)
	}
	return nil
}
