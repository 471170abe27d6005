package relay

import (
	"context"
	"errors"
	"fmt"
	"net/http"
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
	errFull = errors.New("too many requests wait for it already")
	// errUserFull leaves room for other users.
	errUserFull = errors.New("too many requests of this user wait for it already")
)

// userShare is the part of the limits that one user may have: 1/userShare.
const userShare = 2

// hold is a queue of requests. It belongs to an endpoint, whose lock guards it.
type hold struct {
	limits Limits
	// gate is closed when they are to wait no longer; nil if there is no need to wait.
	gate chan struct{}
	queued
	// users are those who have requests, if they are told apart.
	users map[string]queued
}

// queued is how many requests wait, and their size.
type queued struct {
	requests int
	bytes    int64
}

func (h queued) plus(requests, size int) queued {
	return queued{h.requests + requests, h.bytes + int64(requests*size)}
}

// within reports whether that is not more than a share of the limits, of which a single
// request always is.
func (h queued) within(l Limits, share int) bool {
	return h.requests <= max(1, l.Requests/share) && (h.bytes <= l.Bytes/int64(share) || h.requests == 1 && h.bytes <= l.Bytes)
}

// waiter is a request that may have to wait.
type waiter struct {
	size int
	r    *http.Request
}

// userOf is whose request that is, "" if users are not told apart.
func (e *endpoint) userOf(w waiter) string {
	if e.user == nil || w.r == nil {
		return ""
	}
	return e.user(w.r)
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

// waitsFor returns the channel that is closed when requests wait no longer; nil if they do not wait.
func (e *endpoint) waitsFor() <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.hold.gate
}

func (e *endpoint) setLimits(l Limits) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.hold.limits = l.withDefaults()
}

// enter counts a request of that size as one that waits, if there is room for it.
func (e *endpoint) enter(user string, size int) (gate <-chan struct{}, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	h := &e.hold
	all, own := h.plus(1, size), h.users[user].plus(1, size)
	if !all.within(h.limits, 1) {
		return nil, errFull
	}
	if user != "" && !own.within(h.limits, userShare) {
		return nil, errUserFull
	}
	h.set(user, all, own)
	return h.gate, nil
}

func (e *endpoint) leave(user string, size int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	h := &e.hold
	h.set(user, h.plus(-1, size), h.users[user].plus(-1, size))
}

// set sets what waits in all, and of one user.
func (h *hold) set(user string, all, own queued) {
	h.queued = all
	switch {
	case user == "":
	case own.requests == 0:
		delete(h.users, user)
	case h.users == nil:
		h.users = map[string]queued{user: own}
	default:
		h.users[user] = own
	}
}

// awaitResume waits until requests can go on.
func (e *endpoint) awaitResume(ctx context.Context, w waiter) error {
	user := e.userOf(w)
	gate, err := e.enter(user, w.size)
	if err != nil {
		return fmt.Errorf("%w, and %w", errHeld, err)
	}
	defer e.leave(user, w.size)
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
