package httpserver

import (
	"sync"
	"time"
)

// patience is how long a request runs at least before the system is asked to tell when the host closes its end of the connection. Most have
// ended by then, and cost nothing.
const patience = 10 * time.Millisecond

// hangups knows which requests run, and ends the contexts of those whose connection the host has closed.
type hangups struct {
	mu sync.Mutex
	// first and final are the ends of the list of requests that have run for less than about patience, in order of their beginning.
	first, final *conn
	// round counts the times that the list has been looked at.
	round  uint64
	timer  *time.Timer
	armed  bool
	closed bool
	watched
}

// running is a connection's place in hangups.
type running struct {
	x              *exchange
	listed         bool
	round          uint64
	earlier, later *conn
	// watch is by what the system names the connection, 0 if it has not been asked.
	watch int32
}

// begin is called when a request begins.
func (h *hangups) begin(c *conn, x *exchange) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c.running.x, c.running.round = x, h.round
	h.append(c)
	if !h.armed && !h.closed {
		h.armed = true
		if h.timer == nil {
			h.timer = time.AfterFunc(patience, h.look)
		} else {
			h.timer.Reset(patience)
		}
	}
}

// end is called when the request of a connection has ended, or a handler has taken the connection over.
func (h *hangups) end(c *conn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c.running.listed {
		h.remove(c)
	}
	if c.running.watch != 0 {
		h.unwatch(c)
	}
	c.running.x = nil
}

// stream is called when the handler sends what it has so far: such a response goes on for longer, and its handler
// writes again. It should know by its context when it is not read, rather than by an error.
func (h *hangups) stream(c *conn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c.running.listed && !h.closed {
		h.remove(c)
		h.watch(c)
	}
}

func (h *hangups) append(c *conn) {
	r := &c.running
	r.listed, r.earlier, r.later = true, h.final, nil
	if h.final != nil {
		h.final.running.later = c
	} else {
		h.first = c
	}
	h.final = c
}

func (h *hangups) remove(c *conn) {
	r := &c.running
	if r.earlier != nil {
		r.earlier.running.later = r.later
	} else {
		h.first = r.later
	}
	if r.later != nil {
		r.later.running.earlier = r.earlier
	} else {
		h.final = r.earlier
	}
	r.listed, r.earlier, r.later = false, nil, nil
}

// look has the requests watched that were there when it looked before, and looks again while there are others.
func (h *hangups) look() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return
	}
	for c := h.first; c != nil && c.running.round < h.round; c = h.first {
		h.remove(c)
		h.watch(c)
	}
	h.round++
	if h.armed = h.first != nil; h.armed {
		h.timer.Reset(patience)
	}
}

// goesOn is called when the host sends no more, but may still read. It reports whether that does not end the request:
// until its body has been read, as with net/http.
func (x *exchange) goesOn() bool {
	x.halfClosed.Store(true)
	return x.length != 0 && !x.body.ended.Load()
}

// bodyEnded is called when the body has been read to its end.
func (x *exchange) bodyEnded() {
	if x.halfClosed.Load() {
		x.hungUp()
	}
}

// hungUp ends the request that runs on a connection.
func (x *exchange) hungUp() {
	x.ctx.end()
	x.response.gone.give()
}

// notice tells once that the host has closed its end of the connection. Its channel is made on demand.
type notice struct {
	mu    sync.Mutex
	c     chan bool
	given bool
}

func (n *notice) channel() <-chan bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.c == nil {
		n.c = make(chan bool, 1)
		if n.given {
			n.c <- true
		}
	}
	return n.c
}

func (n *notice) give() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.given && n.c != nil {
		n.c <- true
	}
	n.given = true
}

// close ends what looks at the requests.
func (h *hangups) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	if h.timer != nil {
		h.timer.Stop()
	}
	h.stop()
}
