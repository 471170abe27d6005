package connlimit

import (
	"fmt"
	"net"
	"syscall"
)

// CheckMade returns EMFILE if a connection that this process has just made leaves it less than the given share of its
// descriptors; the caller closes it then.
func CheckMade(c net.Conn, share int) error {
	if beyond(c, ProcessDescriptors(), share) {
		return syscall.EMFILE
	}
	return nil
}

// CheckLimit returns an error if this process may have fewer descriptors than it needs.
func CheckLimit(need int) error {
	if limit := ProcessDescriptors(); limit < uint64(need) {
		return fmt.Errorf("this process may have %d files and connections open, and needs %d with these stages, besides those of many clients: "+
			"raise the limit (ulimit -n, LimitNOFILE= of systemd, --ulimit nofile= of a container)", limit, need)
	}
	return nil
}

// ProcessDescriptors is how many descriptors this process may have.
func ProcessDescriptors() uint64 {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 1024 // what systems give at least
	}
	return min(uint64(limit.Cur), maxDescriptors)
}

// maxDescriptors is more than any process has: no limit is one that can be calculated with.
const maxDescriptors = 1 << 32

// beyond reports whether more than a share of the descriptors are in use. A new descriptor gets the lowest number that is
// free: all below it are in use.
func beyond(conn net.Conn, limit uint64, share int) bool {
	s, ok := conn.(syscall.Conn)
	if !ok || limit == 0 || share == 0 {
		return false
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return false
	}
	var number uint64
	if err := raw.Control(func(fd uintptr) { number = uint64(fd) }); err != nil {
		return false
	}
	return number >= limit*uint64(share)/100
}
