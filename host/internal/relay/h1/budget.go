package h1

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/semaphore"
)

// ErrNoRoom is in the errors of responses whose heads, or trailers, do not fit in a Budget.
var ErrNoRoom = errors.New("no room")

// Budget bounds the bytes that large heads and trailers of responses, or chunks of their bodies, hold at the same time.
// What fits in a connection's buffer does not count, unless it has many lines. A nil Budget is without bounds.
type Budget struct {
	limit  int64
	wait   time.Duration
	parent *Budget
	room   *semaphore.Weighted
}

// NewBudget returns a Budget of limit bytes. A response waits at most that long for room, and a chunk that has taken room
// for its rest. The bytes are also taken from parent if that is not nil.
func NewBudget(limit int64, wait time.Duration, parent *Budget) *Budget {
	return &Budget{limit: limit, wait: wait, parent: parent, room: semaphore.NewWeighted(limit)}
}

// take waits for n bytes.
func (b *Budget) take(ctx context.Context, n int64) error {
	if b == nil {
		return nil
	}
	if n > b.limit {
		return ErrNoRoom
	}
	if err := b.acquire(ctx, n); err != nil {
		return err
	}
	if err := b.parent.take(ctx, n); err != nil {
		b.room.Release(n)
		return err
	}
	return nil
}

func (b *Budget) acquire(ctx context.Context, n int64) error {
	if b.room.TryAcquire(n) {
		return nil
	}
	wait, cancel := context.WithTimeout(ctx, b.wait)
	defer cancel()
	switch err := b.room.Acquire(wait, n); {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	default:
		return fmt.Errorf("%w, after %s", ErrNoRoom, b.wait)
	}
}

// TryTake takes n bytes, to be given back, if there is room, which it reports.
func (b *Budget) TryTake(n int64) bool {
	switch {
	case b == nil:
		return true
	case !b.room.TryAcquire(n):
		return false
	case !b.parent.TryTake(n):
		b.room.Release(n)
		return false
	}
	return true
}

// Give gives back n bytes that were taken.
func (b *Budget) Give(n int64) {
	for ; b != nil; b = b.parent {
		b.room.Release(n)
	}
}

// LineCost is what each line of a head of more than FreeLines counts in addition to its text, in bytes: what is made of
// a short one is larger.
const (
	LineCost  = 256
	FreeLines = 128
)

func linesCost(text string) int {
	if len(text) <= FreeLines*len("a:\r\n") {
		return 0
	}
	if n := strings.Count(text, "\n"); n > FreeLines {
		return n * LineCost
	}
	return 0
}

// take counts n bytes of a head or of trailers.
func (c *Conn) take(ctx context.Context, n int) error {
	if err := c.Heads.take(ctx, int64(n)); err != nil {
		return err
	}
	c.taken += int64(n)
	return nil
}

// reserve counts the longest head, or trailers, before the length is known: of those that have come in part none waits for another.
func (c *Conn) reserve(ctx context.Context) error {
	if c.reserved {
		return nil
	}
	if err := c.take(ctx, MaxHead); err != nil {
		return err
	}
	c.reserved = true
	return nil
}

// settle gives back what was reserved beyond n bytes.
func (c *Conn) settle(n int) {
	if c.reserved {
		c.reserved = false
		c.taken -= int64(MaxHead - n)
		c.Heads.Give(int64(MaxHead - n))
	}
}

// HoldsHead reports whether the response has taken anything of the Budget.
func (c *Conn) HoldsHead() bool { return c.taken > 0 }

// FreeHead gives back what the response has taken of the Budget. It is to be called when its
// head and trailers are of no use any more; reading the next one does so, too.
func (c *Conn) FreeHead() {
	c.reserved = false
	if c.taken > 0 {
		c.Heads.Give(c.taken)
		c.taken = 0
	}
}
