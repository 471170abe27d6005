package sdk

import (
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// peerOf returns the process and the user that have opened a connection.
func peerOf(conn net.Conn) (pid, uid int, err error) {
	local, ok := conn.(*net.UnixConn)
	if !ok {
		return 0, 0, fmt.Errorf("%T is not a connection of a Unix socket", conn)
	}
	raw, err := local.SyscallConn()
	if err != nil {
		return 0, 0, err
	}
	var peer *unix.Ucred
	var peerErr error
	err = raw.Control(func(fd uintptr) {
		peer, peerErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err != nil {
		return 0, 0, err
	}
	if peerErr != nil {
		return 0, 0, fmt.Errorf("credentials of the peer: %w", peerErr)
	}
	return int(peer.Pid), int(peer.Uid), nil
}

// checkPeer returns an error if another process or user has opened a connection.
func checkPeer(conn net.Conn, pid, uid int) error {
	peerPID, peerUID, err := peerOf(conn)
	if err != nil {
		return err
	}
	if peerPID != pid || peerUID != uid {
		return fmt.Errorf("process %d of user %d is not the host, which is process %d of user %d", peerPID, peerUID, pid, uid)
	}
	return nil
}
