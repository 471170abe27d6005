package relay

import "golang.org/x/sys/unix"

// awaitHangup returns when both directions of a connection have ended, by whoever
// ended them.
func (c *conn) awaitHangup() {
	_ = c.raw.Read(func(fd uintptr) bool {
		p := []unix.PollFd{{Fd: int32(fd)}}
		_, err := unix.Poll(p, 0)
		return err != nil && err != unix.EINTR || p[0].Revents&(unix.POLLHUP|unix.POLLERR|unix.POLLNVAL) != 0
	})
}
