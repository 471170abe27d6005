package h1

import "golang.org/x/sys/unix"

// awaitHangup returns when both directions of the connection have ended, whichever end
// has closed them.
func (c *Conn) awaitHangup() {
	_ = c.in.Raw().Read(func(fd uintptr) bool {
		p := []unix.PollFd{{Fd: int32(fd)}}
		_, err := unix.Poll(p, 0)
		return err != nil && err != unix.EINTR || p[0].Revents&(unix.POLLHUP|unix.POLLERR|unix.POLLNVAL) != 0
	})
}
