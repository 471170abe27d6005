package sdk

import (
	"context"
	"strconv"
	"sync/atomic"
	"time"
)

// requestContext is the context of a request from the host: that of the server, with the deadline of the request and
// its exchange. The timer of the deadline is made when it is first waited for, which most requests do not.
type requestContext struct {
	context.Context
	exchange *exchange
	deadline time.Time // may be zero
	timed    atomic.Pointer[timedContext]
}

// timedContext ends at the deadline.
type timedContext struct {
	context.Context
	cancel context.CancelFunc
}

// maxTimeout keeps the arithmetic with durations from overflowing.
const maxTimeout = 1 << 40

// deadlineAfter returns the zero time for what is no number of milliseconds, or too large a one.
func deadlineAfter(millis string) time.Time {
	ms, err := strconv.ParseInt(millis, 10, 64)
	if err != nil || ms > maxTimeout {
		return time.Time{}
	}
	return time.Now().Add(time.Duration(ms) * time.Millisecond)
}

// end releases the timer.
func (c *requestContext) end() {
	if t := c.timed.Load(); t != nil {
		t.cancel()
	}
}

// wait returns what ends when the request has to.
func (c *requestContext) wait() context.Context {
	if c.deadline.IsZero() {
		return c.Context
	}
	if t := c.timed.Load(); t != nil {
		return t
	}
	t := &timedContext{}
	t.Context, t.cancel = context.WithDeadline(c.Context, c.deadline)
	if !c.timed.CompareAndSwap(nil, t) {
		t.cancel()
	}
	return c.timed.Load()
}

func (c *requestContext) Deadline() (time.Time, bool) {
	if c.deadline.IsZero() {
		return c.Context.Deadline()
	}
	return c.deadline, true
}

func (c *requestContext) Done() <-chan struct{} { return c.wait().Done() }

func (c *requestContext) Err() error {
	if c.timed.Load() != nil || !c.deadline.IsZero() && !time.Now().Before(c.deadline) {
		return c.wait().Err()
	}
	return c.Context.Err()
}

// Value has what waits, if anything does, respond to package context, which asks for its own by a key.
func (c *requestContext) Value(key any) any {
	if _, ok := key.(exchangeKey); ok {
		return c.exchange
	}
	if t := c.timed.Load(); t != nil {
		return t.Value(key)
	}
	return c.Context.Value(key)
}

// endsWith reports whether another context ends when this one does: a new deadline is a change of a request, a new value is not.
func (c *requestContext) endsWith(other context.Context) bool {
	return other == c || other.Done() == c.Done()
}

type exchangeKey struct{}

// responseFrom returns the response to the request that ctx belongs to, or nil.
func exchangeFrom(ctx context.Context) *exchange {
	x, _ := ctx.Value(exchangeKey{}).(*exchange)
	return x
}
