package httpserver

import (
	"errors"
	"net"
	"net/http"
)

// Owner is what a response belongs to. It is asked by the goroutine of the handler.
type Owner interface {
	// Head is called before the headers of the final response are fixed, with these. What it changes goes along. If the handler takes the
	// connection over instead of responding, the headers are those from which it may write the head.
	Head(http.Header)
	// Trailers is called when the handler has returned, before the end of the response.
	Trailers(http.Header)
	// Hijacked returns the connection for a handler that takes it over, of which nothing has been written, or the head if begun.
	Hijacked(conn net.Conn, header http.Header, begun bool) net.Conn
}

// Begun reports whether the handler has begun the final response, has declined, or has taken the connection over.
func (w *Response) Begun() bool { return w.status != 0 || w.x.conn.hijacked }

// Hold leaves the headers open, and holds up to 2 KiB of the body, until the handler returns or flushes. It is called
// before the handler begins to respond.
func (w *Response) Hold() { w.held = true }

// BodyRead reports whether the handler has read from the body of the request.
func (w *Response) BodyRead() bool { return w.x.body.touched.Load() }

// Expects reports whether the host waits to be asked for the body, and may get a response instead.
func (w *Response) Expects() bool { return w.expectation.expects && !w.fullDuplex }

// ErrDeclined is the error of writes after Decline.
var ErrDeclined = errors.New("the request was declined: its response cannot be written any more")

// Decline responds with a head alone, which is not changed by the owner. The handler has not begun to respond; what it
// writes afterwards is dropped.
func (w *Response) Decline(status int, header http.Header) {
	w.declined = true
	w.header, w.status = header, status
	w.fix()
}

// Refused reports whether the request has been declined, and notes that the handler goes on all the same.
func (w *Response) Refused() bool {
	w.late = w.late || w.declined
	return w.declined
}

// Declined reports whether the request has been declined, and whether the handler has written to the response since.
func (w *Response) Declined() (declined, late bool) { return w.declined, w.late }
