package httpserver

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// watched are the requests that the system tells the end of: an epoll instance in the runtime's, so that nothing is blocked in it.
type watched struct {
	poll  *os.File
	names map[int32]*conn
	name  int32
}

// watch asks the system to tell when the host closes its end of a connection.
func (h *hangups) watch(c *conn) {
	if err := h.start(); err != nil {
		c.server.ErrorLog.Printf("requests do not end when the host closes their connections: %v", err)
		return
	}
	for h.name++; h.name == 0 || h.names[h.name] != nil; h.name++ {
	}
	name := h.name
	var err error
	closed := c.in.Raw().Control(func(fd uintptr) {
		err = h.control(unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLRDHUP | unix.EPOLLONESHOT, Fd: name})
		if err == nil {
			h.names[name], c.running.watch = c, name
		}
	})
	if closed == nil && err != nil {
		c.server.ErrorLog.Printf("a request does not end when the host closes its connection: %v", err)
	}
}

func (h *hangups) unwatch(c *conn) {
	delete(h.names, c.running.watch)
	c.running.watch = 0
	_ = c.in.Raw().Control(func(fd uintptr) { _ = h.control(unix.EPOLL_CTL_DEL, fd, nil) })
}

func (h *hangups) control(op int, fd uintptr, event *unix.EpollEvent) error {
	raw, err := h.poll.SyscallConn()
	if err != nil {
		return err
	}
	return errors.Join(raw.Control(func(poll uintptr) { err = unix.EpollCtl(int(poll), op, int(fd), event) }), err)
}

// start begins to wait for what the system tells.
func (h *hangups) start() error {
	if h.poll != nil {
		return nil
	}
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return os.NewSyscallError("epoll_create1", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		_ = unix.Close(fd)
		return os.NewSyscallError("fcntl", err)
	}
	h.poll, h.names = os.NewFile(uintptr(fd), "epoll"), map[int32]*conn{}
	go h.await(h.poll)
	return nil
}

// await ends the requests whose connections the host has closed, until the instance is closed.
func (h *hangups) await(poll *os.File) {
	raw, err := poll.SyscallConn()
	if err != nil {
		return
	}
	var events [64]unix.EpollEvent
	for {
		var n int
		var failed error
		err := raw.Read(func(fd uintptr) bool {
			n, failed = unix.EpollWait(int(fd), events[:], 0)
			return n != 0
		})
		if err != nil || failed != nil && failed != unix.EINTR {
			return
		}
		for _, e := range events[:max(n, 0)] {
			if x := h.told(e); x != nil {
				x.hungUp()
			}
		}
	}
}

// told returns the request that has ended by what the system tells of its connection, nil if none has.
func (h *hangups) told(e unix.EpollEvent) *exchange {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := h.names[e.Fd]
	if c == nil {
		return nil
	}
	x := c.running.x
	if x == nil || e.Events&(unix.EPOLLHUP|unix.EPOLLERR) != 0 || !x.goesOn() {
		return x
	}
	_ = c.in.Raw().Control(func(fd uintptr) {
		_ = h.control(unix.EPOLL_CTL_MOD, fd, &unix.EpollEvent{Events: unix.EPOLLONESHOT, Fd: e.Fd})
	})
	return nil
}

func (h *hangups) stop() {
	if h.poll != nil {
		_ = h.poll.Close()
	}
}
