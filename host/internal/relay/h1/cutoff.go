package h1

import (
	"errors"
	"os"
	"time"
)

// ErrCutOff is what CopyBody returns after CutOff.
var ErrCutOff = errors.New("cut off")

const (
	// cutPause is how long a stage must have sent nothing, so that what it writes as one is not torn. One that
	// always has more to send is cut off between two chunks after cutWait.
	cutPause = 10 * time.Millisecond
	cutWait  = time.Second
)

// CutOff makes CopyBody end a chunked body that goes on, at a point where the stage has nothing more to send. It is called
// while CopyBody runs, by any goroutine. The connection cannot be used again.
func (c *Conn) CutOff() {
	if !c.cut.Swap(true) {
		_ = c.conn.SetReadDeadline(time.Unix(1, 0))
	}
}

// cutOr returns ErrCutOff in place of an error that CutOff has caused.
func (c *Conn) cutOr(err error) error {
	if c.cut.Load() && errors.Is(err, os.ErrDeadlineExceeded) {
		return ErrCutOff
	}
	return err
}

// cutOff is the end of a body that is cut off: by when it must have come, and since when nothing has.
type cutOff struct{ by, silentSince time.Time }

// next is called after each attempt to receive more, with its error. It returns that of the body if it ends with it, or
// nil after it has set by when the next attempt ends. Between reports whether all is passed on that has been received,
// and no chunk has begun.
func (c *cutOff) next(conn *Conn, err error, between bool) error {
	now := time.Now()
	silent := errors.Is(err, os.ErrDeadlineExceeded)
	if c.by.IsZero() {
		c.by = now.Add(cutWait)
	}
	if !silent || c.silentSince.IsZero() {
		c.silentSince = now
	}
	switch {
	case err != nil && !silent:
		return err
	case between && (now.Sub(c.silentSince) >= cutPause || now.After(c.by)):
		return ErrCutOff
	}
	return conn.conn.SetReadDeadline(now.Add(cutPause))
}
