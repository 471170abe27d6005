package relay

import (
	"context"
	"errors"
)

// Limits bound the requests that wait for a stage which is down for a moment. Requests
// beyond them are Unavailable at once.
type Limits struct {
	Requests int
	// Bytes are those of the requests' heads, and of their bodies as far as these have
	// been read.
	Bytes int64
}

// The limits if others are not given.
const (
	DefaultHoldRequests = 1000
	DefaultHoldBytes    = 64 << 20
)

func (l Limits) withDefaults() Limits {
	if l.Requests <= 0 {
		l.Requests = DefaultHoldRequests
	}
	if l.Bytes <= 0 {
		l.Bytes = DefaultHoldBytes
	}
	return l
}

var (
	errHeld = errors.New("its process has ended, another is coming up")
	errFull = errors.New("its process has ended, another is coming up, and too many requests wait for it already")
)

// hold is a queue of requests. It belongs to an endpoint, whose lock guards it.
type hold struct {
	limits Limits
	// gate is closed when they are to wait no longer; nil if there is no need to wait.
	gate     chan struct{}
	requests int
	bytes    int64
}

func (h *hold) release() {
	if h.gate != nil {
		close(h.gate)
		h.gate = nil
	}
}

// setHeld makes requests that come from now on wait until it is called again, or
// until close.
func (e *endpoint) setHeld(held bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !held {
		e.hold.release()
	} else if e.hold.gate == nil && !e.closed {
		e.hold.gate = make(chan struct{})
	}
}

func (e *endpoint) setLimits(l Limits) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.hold.limits = l.withDefaults()
}

// enter counts a request of that size as one that waits, if there is room for it.
func (e *endpoint) enter(size int) (gate <-chan struct{}, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	h := &e.hold
	if h.requests >= h.limits.Requests || h.bytes+int64(size) > h.limits.Bytes {
		return nil, errFull
	}
	h.requests++
	h.bytes += int64(size)
	return h.gate, nil
}

func (e *endpoint) leave(size int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.hold.requests--
	e.hold.bytes -= int64(size)
}

// awaitResume waits until requests can go on.
func (e *endpoint) awaitResume(ctx context.Context, size int) error {
	gate, err := e.enter(size)
	if err != nil {
		return err
	}
	defer e.leave(size)
	if gate == nil {
		return nil // it has been resumed in the meantime
	}
	select {
	case <-gate:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
