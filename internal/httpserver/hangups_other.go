//go:build !linux

package httpserver

import (
	"syscall"
	"time"
)

// pollInterval is how often connections are looked at on a system that does not tell what happens to them.
const pollInterval = 100 * time.Millisecond

// watched are the connections that are looked at.
type watched struct {
	conns map[*conn]struct{}
	poll  *time.Timer
}

func (h *hangups) watch(c *conn) {
	if h.conns == nil {
		h.conns = map[*conn]struct{}{}
		h.poll = time.AfterFunc(pollInterval, h.lookAtAll)
	} else if len(h.conns) == 0 {
		h.poll.Reset(pollInterval)
	}
	h.conns[c], c.running.watch = struct{}{}, 1
}

func (h *hangups) unwatch(c *conn) {
	delete(h.conns, c)
	c.running.watch = 0
}

// lookAtAll ends the requests whose connections the host has closed.
func (h *hangups) lookAtAll() {
	var gone []*exchange
	h.mu.Lock()
	for c := range h.conns {
		if c.sendsNoMore() {
			gone = append(gone, c.running.x)
			h.unwatch(c)
		}
	}
	if len(h.conns) > 0 && !h.closed {
		h.poll.Reset(pollInterval)
	}
	h.mu.Unlock()
	for _, x := range gone {
		x.hungUp()
	}
}

// sendsNoMore reports whether the host has closed its end, and all that it has sent has been received. Half a
// connection looks the same: the host closes none while it waits for a response.
func (c *conn) sendsNoMore() (gone bool) {
	_ = c.in.Raw().Control(func(fd uintptr) {
		n, _, err := syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		gone = n <= 0 && err != syscall.EAGAIN && err != syscall.EINTR
	})
	return gone
}

func (h *hangups) stop() {
	if h.poll != nil {
		h.poll.Stop()
	}
}
