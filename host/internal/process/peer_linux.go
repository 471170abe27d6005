package process

import (
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// peerOf returns which process, which must be one of this user, listens at the other
// end of a connection.
func peerOf(conn *net.UnixConn) (pid int, err error) {
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
		return 0, fmt.Errorf("who listens: %w", peerErr)
	}
	if int(peer.Uid) != os.Geteuid() {
		return 0, fmt.Errorf("process %d of user %d listens at %s; it must be one of this user (%d)",
			peer.Pid, peer.Uid, conn.RemoteAddr(), os.Geteuid())
	}
	return int(peer.Pid), nil
}

// checkListener checks that the process with this id listens at the other end.
func checkListener(conn *net.UnixConn, pid int) error {
	got, err := peerOf(conn)
	if err == nil && got != pid {
		err = fmt.Errorf("%s does not belong to process %d, which was launched, but to process %d", conn.RemoteAddr(), pid, got)
	}
	return err
}
