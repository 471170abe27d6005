package httpserver

import (
	"sync"
	"time"
)

// holdTime is how long a part of a body waits for more to be sent with it.
const holdTime = 5 * time.Millisecond

// hold sends what the present response of a connection holds back of its body when it has waited for holdTime.
type hold struct {
	// mu is held by code that writes to the response, or sends what it holds.
	mu sync.Mutex
	// of holds something since then; it is nil if none does.
	of    *Response
	since time.Time
	// timer is armed until it ends, also if nothing is held by then: to stop it costs more.
	timer *time.Timer
	armed bool
}

// begin is called with mu held when w holds more than net/http's server would.
func (h *hold) begin(w *Response) {
	if h.of != nil {
		return
	}
	h.of, h.since = w, time.Now()
	if !h.armed {
		h.arm(holdTime)
	}
}

func (h *hold) arm(d time.Duration) {
	if h.armed = true; h.timer == nil {
		h.timer = time.AfterFunc(d, h.timeout)
	} else {
		h.timer.Reset(d)
	}
}

func (h *hold) timeout() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.armed = false
	if h.of == nil {
		return
	}
	if left := holdTime - time.Since(h.since); left > 0 {
		h.arm(left)
		return
	}
	_ = h.of.push(nil)
}

// send sends what is held.
func (h *hold) send() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.of != nil {
		_ = h.of.push(nil)
	}
}
