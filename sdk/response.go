package sdk

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/catena-dev/catena/sdk/stagev1"
	"github.com/catena-dev/catena/sdk/stagev1/header"
	"github.com/catena-dev/catena/sdk/stagev1/http1"
)

// response is the response to a request from the host, and what is known of that request.
// It is the ResponseWriter that the stage's handler gets, and a value of the request's
// context.
type response struct {
	writer http.ResponseWriter
	// id is the host's name for the request.
	id string
	// original is the request as the host has sent it.
	original fingerprint

	buffer responseBuffer
	// began is set when the final status has been written or the connection hijacked.
	began    bool
	declined bool
	// switched is set when the handler has written a 101.
	switched bool
	hijacked net.Conn
	// writtenAfterDecline is set when the handler has written to a response after Decline.
	writtenAfterDecline bool

	// hostHeaders and hostTrailers are for the host alone, see SetHostHeader and SetHostTrailer.
	hostHeaders, hostTrailers http.Header
	// beforeHead is called before the head of a held response is written, see HoldResponse.
	beforeHead func()

	userHeader string
	auditLevel string
	ctx        requestContext
	drain      *drain

	mu     sync.Mutex
	user   *User         // parsed when it is first needed
	signal chan struct{} // of the drain, made when it is first needed
	over   bool
	// annotations and warnings are written with the head of the response.
	annotations map[string]string
	warnings    []string
}

var errDeclined = errors.New("the request was declined: its response cannot be written any more")

// newResponse returns the response to a request from the host, and the request for the
// stage's handler.
func newResponse(w http.ResponseWriter, r *http.Request, d *drain) (*response, *http.Request) {
	resp := &response{
		writer: w, drain: d,
		id:         header.First(r.Header, stagev1.HeaderRequest),
		userHeader: header.First(r.Header, stagev1.HeaderUser),
		auditLevel: header.First(r.Header, stagev1.HeaderAuditLevel),
	}
	resp.ctx.Context, resp.ctx.response = withTrace(r.Context(), r.Header), resp
	resp.ctx.deadline = deadlineAfter(header.First(r.Header, stagev1.HeaderTimeout))
	// net/http looks at the body of its own request, so that one is not changed.
	r = r.WithContext(&resp.ctx)
	if r.Body != http.NoBody {
		r.Body = &requestBody{ReadCloser: r.Body, read: &resp.buffer.bodyRead, lost: &resp.buffer.bodyLost}
	}
	resp.buffer.expect = r.ContentLength != 0 && r.Header.Get("Expect") != ""
	resp.buffer.active = resp.buffer.expect
	if r.Header[stagev1.HeaderDuplex] != nil {
		_ = resp.EnableFullDuplex()
	}
	if http1.Listed(r.Header[stagev1.HeaderAdded], "Expect") {
		delete(r.Header, "Expect") // a server that the handler proxies to should not get it
	}
	resp.original = fingerprintOf(r)
	return resp, r
}

// release is called when the handler has returned.
func (w *response) release() {
	w.ctx.end()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
	if w.signal != nil {
		w.drain.forget(w.signal)
	}
}

// authenticatedUser returns the user of the request, nil if the host does not name one.
func (w *response) authenticatedUser() *User {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.user == nil {
		w.user = parseUser(w.userHeader)
	}
	return w.user
}

func (w *response) draining() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.signal == nil && !w.over {
		w.signal = w.drain.signal()
	}
	return w.signal
}

// responseOf returns the response that a writer is or wraps, or nil.
func responseOf(w http.ResponseWriter) *response {
	for {
		switch v := w.(type) {
		case *response:
			return v
		case interface{ Unwrap() http.ResponseWriter }:
			w = v.Unwrap()
		default:
			return nil
		}
	}
}

// untouched reports whether r is still the request that the host has sent, and the
// response has not begun.
func (w *response) untouched(r *http.Request) bool {
	return !w.began && len(w.writer.Header()) == 0 && !w.buffer.bodyRead.Load() && fingerprintOf(r) == w.original &&
		w.ctx.endsWith(r.Context())
}

// requestBody records whether the handler has read from it.
type requestBody struct {
	io.ReadCloser
	read *atomic.Bool
	lost *atomic.Bool // see responseBuffer
}

func (b *requestBody) Read(p []byte) (int, error) {
	b.read.Store(true)
	if b.lost.Load() {
		return 0, http.ErrBodyReadAfterClose
	}
	return b.ReadCloser.Read(p)
}

// beginResponse is called when the handler begins the final response.
func (w *response) beginResponse() {
	if !w.began {
		w.began = true
		if w.beforeHead == nil {
			w.setHostHeaders(w.writer.Header())
		}
	}
}

// endHold is called before the head of the final response is written.
func (w *response) endHold() {
	if w.beforeHead != nil {
		f := w.beforeHead
		w.beforeHead = nil
		f()
		w.setHostHeaders(w.writer.Header())
	}
}

// end is called when the handler has returned without a panic.
func (w *response) end() {
	w.buffer.duplex = false // whoever has returned reads no more
	switch {
	case w.hijacked != nil, w.declined:
	case w.switched:
		// The host passes on what the client sends: on this connection, nothing is a request of the host any more.
		if conn, _, err := w.Hijack(); err == nil {
			_ = conn.Close()
		}
	case w.began:
		w.flushBuffer()
		w.setHostTrailers(w.writer.Header())
	default:
		w.beginResponse() // the server writes the head
		w.endHold()
	}
}

// The methods below are those of net/http's own writer.

func (w *response) Unwrap() http.ResponseWriter { return w.writer }

func (w *response) Header() http.Header { return w.writer.Header() }

func (w *response) WriteHeader(code int) {
	if w.refuseDeclined() {
		return
	}
	if code >= http.StatusOK || code == http.StatusSwitchingProtocols {
		w.beginResponse()
	}
	if !w.bufferStatus(code) {
		if code == http.StatusSwitchingProtocols {
			w.switched = true
			w.endHold()
		}
		w.writer.WriteHeader(code)
	}
}

func (w *response) Write(p []byte) (int, error) {
	if w.refuseDeclined() {
		return 0, errDeclined
	}
	w.beginResponse()
	if w.bufferBody(p) {
		return len(p), nil
	}
	return w.writer.Write(p)
}

func (w *response) WriteString(s string) (int, error) {
	if w.refuseDeclined() {
		return 0, errDeclined
	}
	w.beginResponse()
	if w.bufferBody([]byte(s)) {
		return len(s), nil
	}
	return io.WriteString(w.writer, s)
}

func (w *response) ReadFrom(r io.Reader) (int64, error) {
	if w.refuseDeclined() {
		return 0, errDeclined
	}
	if w.buffer.buffering() {
		return io.Copy(struct{ io.Writer }{w}, r)
	}
	w.beginResponse()
	w.flushBuffer()
	return io.Copy(w.writer, r)
}

func (w *response) Flush() { _ = w.FlushError() }

func (w *response) FlushError() error {
	if w.refuseDeclined() {
		return errDeclined
	}
	w.beginResponse()
	w.flushBuffer()
	return http.NewResponseController(w.writer).Flush()
}

func (w *response) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	if w.refuseDeclined() {
		return nil, nil, errDeclined
	}
	head := w.writer.Header()
	if w.began {
		w.flushBuffer()
	} else {
		w.buffer.active = false
		w.endHold()
		w.setHostHeaders(head) // the handler may write the head from it
	}
	conn, buffered, err := http.NewResponseController(w.writer).Hijack()
	if err != nil {
		return nil, nil, err
	}
	filter := &hijackedConn{Conn: conn, own: head[stagev1.HeaderAudit], done: w.began}
	w.began, w.hijacked = true, conn
	buffered.Writer.Reset(filter)
	return filter, buffered, nil
}

// EnableFullDuplex is for http.ResponseController.
func (w *response) EnableFullDuplex() error {
	w.buffer.duplex = true
	return http.NewResponseController(w.writer).EnableFullDuplex()
}

// CloseNotify is for k8s.io/apiserver, which streams only to writers that have it.
func (w *response) CloseNotify() <-chan bool {
	if n, ok := w.writer.(interface{ CloseNotify() <-chan bool }); ok {
		return n.CloseNotify()
	}
	return nil
}
