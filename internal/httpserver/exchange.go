package httpserver

import (
	"net/http"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"
)

// exchange is a request with its response.
type exchange struct {
	conn    *conn
	request *http.Request
	// length is the request's, which handlers may change: 0 if it has no body.
	length   int64
	body     body
	response Response
	ctx      requestContext
	// halfClosed is set when the host has closed its half of the connection before the body was read to its end.
	halfClosed atomic.Bool
	deadlines  bool // the handler has set one of the connection, which is not that of the next exchange
}

// newExchange returns the exchange that a head begins.
func newExchange(c *conn, head string) (*exchange, error) {
	x := &exchange{conn: c}
	x.ctx.server, x.ctx.conn = c.server, c
	var empty http.Request
	r := empty.WithContext(&x.ctx)
	if refused := parseRequest(r, head); refused != nil {
		return nil, refused
	}
	x.request, x.length = r, r.ContentLength
	r.RemoteAddr, r.Body = c.remote, http.NoBody
	if x.length != 0 {
		x.body.init(x)
		r.Body = &x.body
	}
	x.response.init(x)
	if expect := r.Header["Expect"]; len(expect) > 0 {
		if !strings.EqualFold(expect[0], "100-continue") {
			return nil, &refusal{http.StatusExpectationFailed, ""}
		}
		if x.length != 0 {
			x.response.expectation.begin()
		}
	}
	return x, nil
}

// finish ends the response when the handler has returned, and reports whether the connection can take another request.
func (x *exchange) finish() bool {
	x.ctx.end()
	reusable := !x.conn.hijacked && x.response.finish()
	x.conn.server.Ended()
	if x.length != 0 && !x.conn.hijacked {
		reusable = x.endBody() && reusable
		x.body.end()
	}
	return reusable
}

// lingerTime is how long a client may take to see that no more of the body is received. It is that of net/http.
const lingerTime = 500 * time.Millisecond

// endBody receives the rest of the request's body, and reports whether the next request begins after it. If it does
// not, the client has time to read the response before what it sends is an error, and nothing more is received: it
// knows by the response that the connection ends.
func (x *exchange) endBody() bool {
	switch {
	case x.body.ended.Load():
		return true
	case !x.response.expectation.sends():
		return false
	case x.body.settle():
		return true
	}
	if half, ok := x.conn.socket.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
		select {
		case <-time.After(lingerTime):
		case <-x.conn.server.Context.Done():
		}
	}
	return false
}

// abort is called when the handler has not returned, with what it has panicked with, nil if it has ended its goroutine.
func (x *exchange) abort(p any) {
	x.conn.server.hangups.end(x.conn)
	x.ctx.end()
	if p != nil && p != http.ErrAbortHandler {
		x.conn.server.ErrorLog.Printf("panic of a handler: %v\n%s", p, debug.Stack())
	}
	hold := &x.conn.hold
	hold.mu.Lock()
	defer hold.mu.Unlock()
	if x.response.begun && !x.conn.hijacked {
		_ = x.response.push(nil) // without the end: the client sees a response that breaks off, as with net/http, and not none
	}
	x.response.done = true
	x.response.release()
	x.conn.server.Ended()
}
