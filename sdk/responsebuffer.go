package sdk

import (
	"bytes"
	"sync/atomic"
)

// responseBuffer holds the beginning of the response to a request whose body the host has
// not sent yet ("Expect: 100-continue").
//
// net/http asks for the body when the handler reads it, but not once the response has
// begun: a handler that writes a little and then reads would wait for ever. So the
// beginning is buffered until the handler reads, returns, flushes, or has written more than
// maxBuffered. If it has not read before that, the body is not sent: reading it is an error.
//
// A response that is held (HoldResponse) is buffered in the same way, but reading does not end that.
type responseBuffer struct {
	active bool
	// expect and held are why it is active.
	expect, held bool
	// body and status have been written by the handler; the status is 0 if it has not been.
	body   bytes.Buffer
	status int
	// bodyLost is set when the response has begun without the request's body.
	bodyLost atomic.Bool
}

// maxBuffered is how much of a response is buffered.
const maxBuffered = 2 << 10

// bufferStatus reports whether the status has been buffered.
func (w *response) bufferStatus(status int) bool {
	if status < 200 {
		return false
	}
	if !w.buffering() {
		w.flushBuffer()
		return false
	}
	if w.buffer.status == 0 {
		w.buffer.status = status
	}
	return true
}

// bufferBody reports whether a piece of the body has been buffered.
func (w *response) bufferBody(p []byte) bool {
	if w.buffering() && w.buffer.body.Len()+len(p) <= maxBuffered {
		w.buffer.body.Write(p)
		return true
	}
	w.flushBuffer()
	return false
}

func (w *response) buffering() bool {
	return w.buffer.active && (w.buffer.held || !w.bodyRead.Load())
}

// flushBuffer writes what is buffered. Nothing is buffered after it.
func (w *response) flushBuffer() {
	if !w.buffer.active {
		return
	}
	w.buffer.bodyLost.Store(w.buffer.expect && !w.bodyRead.Load())
	w.buffer.active = false
	w.endHold()
	if w.buffer.status != 0 {
		w.writer.WriteHeader(w.buffer.status)
	}
	if w.buffer.body.Len() > 0 {
		// The connection keeps an error, and returns it to later writes.
		_, _ = w.buffer.body.WriteTo(w.writer)
	}
}
