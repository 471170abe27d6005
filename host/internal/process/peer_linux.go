package process

import (
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// peerOf returns the id of the process at the other end of a connection. It must be one of
// that user.
func peerOf(conn *net.UnixConn, uid int) (pid int, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	var peer *unix.Ucred
	var peerErr error
	err = raw.Control(func(fd uintptr) {
		peer, peerErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err != nil {
		return 0, err
	}
	if peerErr != nil {
		return 0, fmt.Errorf("peer credentials: %w", peerErr)
	}
	if int(peer.Uid) != uid {
		return 0, fmt.Errorf("process %d of user %d listens at %s; it must be one of user %d",
			peer.Pid, peer.Uid, conn.RemoteAddr(), uid)
	}
	return int(peer.Pid), nil
}

// checkListener checks that the process at the other end has this id and user.
func checkListener(conn *net.UnixConn, pid, uid int) error {
	got, err := peerOf(conn, uid)
	if err == nil && got != pid {
		err = fmt.Errorf("%s does not belong to process %d, which was launched, but to process %d", conn.RemoteAddr(), pid, got)
	}
	return err
}
