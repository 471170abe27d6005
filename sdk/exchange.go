package sdk

import (
	"net"
	"net/http"
	"sync"

	"github.com/catena-dev/catena/internal/http1"
	"github.com/catena-dev/catena/internal/httpserver"
	"github.com/catena-dev/catena/sdk/stagev1"
	"github.com/catena-dev/catena/sdk/stagev1/header"
)

// exchange is a request from the host, with what the SDK knows of it and of its response. It is a value of the
// request's context, and the owner of the ResponseWriter that the stage's handler gets.
type exchange struct {
	writer *httpserver.Response
	// id is the host's name for the request.
	id string
	// original is the request as the host has sent it.
	original fingerprint
	// hijacked is set when the handler has taken the connection over.
	hijacked net.Conn

	// hostHeaders and hostTrailers are for the host alone, see SetHostHeader and SetHostTrailer.
	hostHeaders, hostTrailers http.Header
	// beforeHead is called before the head of a held response is written, see HoldResponse.
	beforeHead func()

	userHeader string
	infoHeader string
	auditLevel string
	ctx        requestContext
	drain      *drain

	mu     sync.Mutex
	user   *User         // parsed when it is first needed
	info   *RequestInfo  // the same
	signal chan struct{} // of the drain, made when it is first needed
	over   bool
	// annotations and warnings are written with the head of the response.
	annotations map[string]string
	warnings    []string
}

// newExchange returns the exchange of a request from the host, and the request for the stage's handler.
func newExchange(w *httpserver.Response, r *http.Request, d *drain) (*exchange, *http.Request) {
	x := &exchange{
		writer: w, drain: d,
		id:         header.First(r.Header, stagev1.HeaderRequest),
		userHeader: header.First(r.Header, stagev1.HeaderUser),
		infoHeader: header.First(r.Header, stagev1.HeaderRequestInfo),
		auditLevel: header.First(r.Header, stagev1.HeaderAuditLevel),
	}
	x.ctx.Context, x.ctx.exchange = withTrace(r.Context(), r.Header), x
	x.ctx.deadline = deadlineAfter(header.First(r.Header, stagev1.HeaderTimeout))
	r = r.WithContext(&x.ctx)
	w.Owner = x
	if r.Header[stagev1.HeaderDuplex] != nil {
		_ = w.EnableFullDuplex()
	}
	if http1.Listed(r.Header[stagev1.HeaderAdded], "Expect") {
		delete(r.Header, "Expect") // a server that the handler proxies to should not get it
	}
	x.original = fingerprintOf(r)
	return x, r
}

// release is called when the handler has returned.
func (x *exchange) release() {
	x.ctx.end()
	x.mu.Lock()
	defer x.mu.Unlock()
	x.over = true
	if x.signal != nil {
		x.drain.forget(x.signal)
	}
}

// authenticatedUser returns the user of the request, nil if the host does not name one.
func (x *exchange) authenticatedUser() *User {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.user == nil {
		x.user = parseHeader[User](x.userHeader)
	}
	return x.user
}

// requestInfo returns what the request asks for, nil if the host does not say it.
func (x *exchange) requestInfo() *RequestInfo {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.info == nil {
		x.info = parseHeader[RequestInfo](x.infoHeader)
	}
	return x.info
}

func (x *exchange) draining() <-chan struct{} {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.signal == nil && !x.over {
		x.signal = x.drain.signal()
	}
	return x.signal
}

// exchangeOf returns the exchange of a writer, or of what it wraps, or nil.
func exchangeOf(w http.ResponseWriter) *exchange {
	for {
		switch v := w.(type) {
		case *httpserver.Response:
			x, _ := v.Owner.(*exchange)
			return x
		case interface{ Unwrap() http.ResponseWriter }:
			w = v.Unwrap()
		default:
			return nil
		}
	}
}

// untouched reports whether r is still the request that the host has sent, and the
// response has not begun.
func (x *exchange) untouched(r *http.Request) bool {
	return !x.writer.Begun() && len(x.writer.Header()) == 0 && !x.writer.BodyRead() &&
		fingerprintOf(r) == x.original && x.ctx.endsWith(r.Context())
}

// Head implements httpserver.Owner.
func (x *exchange) Head(h http.Header) {
	if f := x.beforeHead; f != nil {
		x.beforeHead = nil
		f()
	}
	x.setHostHeaders(h)
}

// Trailers implements httpserver.Owner.
func (x *exchange) Trailers(h http.Header) { x.setHostTrailers(h) }

// Hijacked implements httpserver.Owner.
func (x *exchange) Hijacked(conn net.Conn, h http.Header, begun bool) net.Conn {
	x.hijacked = conn
	return &hijackedConn{Conn: conn, own: h[stagev1.HeaderAudit], done: begun}
}
