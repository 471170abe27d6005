package guard

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// PeerOf returns who is at the other end of a connection of a Unix socket: the process that has connected, which may have ended and
// left the connection to others. The error is ErrNoPeers on a system that does not say.
func PeerOf(c net.Conn) (Peer, error) {
	var peer *unix.Ucred
	err := control(c, func(fd int) (err error) {
		peer, err = unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
		return err
	})
	if err != nil {
		return Peer{}, fmt.Errorf("peer credentials: %w", err)
	}
	return Peer{PID: int(peer.Pid), UID: int(peer.Uid), conn: c}, nil
}

// Lives reports whether the process still runs: its id has not become another's. It is true where the kernel, before Linux 6.5, does
// not tell.
func (p Peer) Lives() bool {
	lives := true
	err := control(p.conn, func(fd int) error {
		process, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PEERPIDFD)
		if errors.Is(err, unix.ENOPROTOOPT) {
			return nil
		}
		if err != nil {
			return err
		}
		defer unix.Close(process)
		err = unix.PidfdSendSignal(process, 0, nil, 0)
		lives = err == nil || errors.Is(err, unix.EPERM)
		return nil
	})
	return lives && err == nil
}

func control(c net.Conn, f func(fd int) error) error {
	s, ok := c.(syscall.Conn)
	if !ok {
		return fmt.Errorf("%T has no descriptor", c)
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	if err := raw.Control(func(fd uintptr) { inner = f(int(fd)) }); err != nil {
		return err
	}
	return inner
}

// Filters returns how many seccomp filters the process has, which it cannot get rid of; 0 before Linux 5.9, which does not tell.
func (p Peer) Filters() (int, error) { return filtersOf(strconv.Itoa(p.PID)) }

// OwnFilters is Filters of this process.
func OwnFilters() (int, error) { return filtersOf("self") }

func filtersOf(pid string) (int, error) {
	text, err := os.ReadFile("/proc/" + pid + "/status")
	if err != nil {
		return 0, err
	}
	_, rest, ok := strings.Cut(string(text), "\nSeccomp_filters:")
	if !ok {
		return 0, nil
	}
	number, _, _ := strings.Cut(rest, "\n")
	return strconv.Atoi(strings.TrimSpace(number))
}
