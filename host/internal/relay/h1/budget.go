package h1

import (
	"errors"
	"sync/atomic"
)

// ErrNoRoom is in the errors of responses whose heads, or trailers, do not fit in a Budget.
var ErrNoRoom = errors.New("no room")

// Budget bounds the bytes that large heads and trailers of responses hold at the same time.
// What fits in a connection's buffer does not count. A nil Budget is without bounds.
type Budget struct {
	limit  int64
	parent *Budget
	used   atomic.Int64
}

// NewBudget returns a Budget of limit bytes, which are also taken from parent if that is not
// nil.
func NewBudget(limit int64, parent *Budget) *Budget { return &Budget{limit: limit, parent: parent} }

// take reports whether there was room for n bytes, which are taken then.
func (b *Budget) take(n int64) bool {
	if b == nil {
		return true
	}
	if b.used.Add(n) > b.limit || !b.parent.take(n) {
		b.used.Add(-n)
		return false
	}
	return true
}

func (b *Budget) give(n int64) {
	for ; b != nil; b = b.parent {
		b.used.Add(-n)
	}
}

// take counts n bytes of a head or of trailers.
func (c *Conn) take(n int) error {
	if !c.Heads.take(int64(n)) {
		return ErrNoRoom
	}
	c.taken += int64(n)
	return nil
}

// FreeHead gives back what the response has taken of the Budget. It is to be called when its
// head and trailers are of no use any more; reading the next one does so, too.
func (c *Conn) FreeHead() {
	if c.taken > 0 {
		c.Heads.give(c.taken)
		c.taken = 0
	}
}
