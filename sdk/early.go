package sdk

import (
	"bytes"
	"sync/atomic"
)

// early keeps the beginning of an answer to a request whose body the host holds back.
//
// net/http asks for the body when the handler reads it, but not once the answer has
// begun: a handler that writes a little and then reads would wait for ever. So the
// beginning waits until the handler reads, ends, flushes, or has written more than
// this. If it does not read before that, the body does not come: reading it is an error.
type early struct {
	held bool
	// kept is what waits, with the status if that has been given.
	kept   bytes.Buffer
	status int
	// lost is set when the answer has begun without the body.
	lost atomic.Bool
}

// maxEarly is how much of an answer waits.
const maxEarly = 2 << 10

// keepHead tells whether the status is kept for later.
func (x *exchange) keepHead(status int) bool {
	if status < 200 {
		return false
	}
	if !x.waits() {
		x.letGo()
		return false
	}
	if x.early.status == 0 {
		x.early.status = status
	}
	return true
}

// keep tells whether a piece of the answer is kept for later.
func (x *exchange) keep(p []byte) bool {
	if x.waits() && x.early.kept.Len()+len(p) <= maxEarly {
		x.early.kept.Write(p)
		return true
	}
	x.letGo()
	return false
}

func (x *exchange) waits() bool { return x.early.held && !x.bodyRead.Load() }

// letGo writes what has been kept.
func (x *exchange) letGo() {
	if !x.early.held {
		return
	}
	x.early.lost.Store(!x.bodyRead.Load())
	x.early.held = false
	if x.early.status != 0 {
		x.writer.WriteHeader(x.early.status)
	}
	if x.early.kept.Len() > 0 {
		// An error stays with the connection: whatever follows gets it.
		_, _ = x.early.kept.WriteTo(x.writer)
	}
}
