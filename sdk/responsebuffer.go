package sdk

import (
	"bytes"
	"net/http"
	"sync/atomic"
)

// responseBuffer holds the beginning of the response to a request whose body the host has
// not sent yet ("Expect: 100-continue").
//
// net/http asks for the body when the handler reads it, but not once the response has
// begun: a handler that writes a little and then reads would wait for ever. So the
// beginning is buffered until the handler reads, returns, flushes, or has written more than
// maxBuffered. If it has not read before that, the body is not sent: reading it is an error.
// It is asked for then if the exchange is duplex.
//
// A response that is held (HoldResponse) is buffered in the same way, but reading does not end that.
type responseBuffer struct {
	active bool
	// expect and held are why it is active.
	expect, held bool
	// duplex: the handler may read the body when the response has begun.
	duplex bool
	// body and status have been written by the handler; the status is 0 if it has not been.
	body   bytes.Buffer
	status int
	// bodyRead is set when the handler has read from the body, and bodyLost when the response has begun without the
	// body.
	bodyRead, bodyLost atomic.Bool
}

func (b *responseBuffer) buffering() bool { return b.active && (b.held || !b.bodyRead.Load()) }

// maxBuffered is how much of a response is buffered.
const maxBuffered = 2 << 10

// bufferStatus reports whether the status has been buffered.
func (w *response) bufferStatus(status int) bool {
	if status < 200 {
		return false
	}
	if !w.buffer.buffering() {
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
	if w.buffer.buffering() && w.buffer.body.Len()+len(p) <= maxBuffered {
		w.buffer.body.Write(p)
		return true
	}
	w.flushBuffer()
	return false
}

// flushBuffer writes what is buffered. Nothing is buffered after it.
func (w *response) flushBuffer() {
	if !w.buffer.active {
		return
	}
	unasked := w.buffer.expect && !w.buffer.bodyRead.Load()
	if unasked && w.buffer.duplex {
		w.writer.WriteHeader(http.StatusContinue)
	} else {
		w.buffer.bodyLost.Store(unasked)
	}
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
