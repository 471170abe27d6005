package httpserver

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/catena-dev/catena/internal/http1"
)

// A response of up to mostSilent bytes that the handler neither flushes nor declares the length of gets its length from
// the server. It is that of net/http.
const mostSilent = 2 << 10

// mostBuffered is how much of a longer body is held back for holdTime at most, eight times what net/http's servers hold
// for as long as it takes: each piece costs a write here, a read and a write in the host, a read of the client, and a
// wakeup of both. A server of HTTP/2 finds out the length of up to 4 KiB if they come at once with their end.
const mostBuffered = 32 << 10

// output is what a response has written and the connection has not.
type output struct{ head, body []byte }

var outputs = sync.Pool{New: func() any {
	return &output{head: make([]byte, 0, 1<<10), body: make([]byte, 0, 4<<10)}
}}

// Response is the ResponseWriter of a handler, with all that net/http's has.
type Response struct {
	// Owner is nil if the response has none. It is set before the handler begins to respond.
	Owner Owner

	x      *exchange
	header http.Header

	// out is nil while there is nothing in it.
	out *output
	// status is 0 until the final head has been written by the handler; then the headers are fixed, unless they are
	// held. The head is complete, with how the body is delimited, when begun is set.
	status             int
	held, fixed, begun bool
	concluded, done    bool // the handler has returned
	head               declared
	// declined is set when there is no response, and late when the handler has written to it all the same.
	declined, late bool

	written int64 // of the body, by the handler
	chunked bool
	last    bool // the connection is closed after the response
	err     error

	expectation expectation
	fullDuplex  bool

	gone notice
}

func (w *Response) init(x *exchange) {
	w.x, w.header, w.head.length = x, http.Header{}, -1
	w.last = x.request.Close
}

// buffers returns where the response is written to.
func (w *Response) buffers() *output {
	if w.out == nil {
		w.out = outputs.Get().(*output)
	}
	return w.out
}

// mostKept is the size of the largest buffer that is used again.
const mostKept = 64 << 10

// release gives the buffers back.
func (w *Response) release() {
	out := w.out
	if out == nil {
		return
	}
	w.out = nil
	if cap(out.head) <= mostKept && cap(out.body) <= mostKept {
		out.head, out.body = out.head[:0], out.body[:0]
		outputs.Put(out)
	}
}

func (w *Response) logf(format string, args ...any) { w.x.conn.server.ErrorLog.Printf(format, args...) }

// Header implements http.ResponseWriter.
func (w *Response) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter.
func (w *Response) WriteHeader(status int) {
	switch {
	case w.Refused():
		return
	case w.x.conn.hijacked:
		w.logf("WriteHeader on a connection that has been taken over")
		return
	case w.status != 0 || w.done:
		w.logf("superfluous WriteHeader")
		return
	case status < 100 || status > 999:
		panic(fmt.Sprintf("invalid WriteHeader code %d", status))
	case status < 200 && status != http.StatusSwitchingProtocols:
		w.inform(status)
		return
	}
	w.status = status
	if !w.held || status == http.StatusSwitchingProtocols {
		w.fix()
	}
}

// fix fixes the headers.
func (w *Response) fix() {
	if w.fixed {
		return
	}
	w.fixed = true
	if w.Owner != nil && !w.declined {
		w.Owner.Head(w.header)
	}
	out := w.buffers()
	out.head = w.head.append(out.head, w.status, w.header, w.logf)
}

// inform writes an informational response.
func (w *Response) inform(status int) {
	if status == http.StatusContinue {
		w.expectation.answered()
	}
	head := appendStatus(nil, status)
	for key, values := range w.header {
		if key != "Content-Length" && key != "Transfer-Encoding" {
			head = appendFields(head, key, values)
		}
	}
	w.send(append(head, "\r\n"...))
}

// Write implements http.ResponseWriter. What is held back cannot fail: that the connection has ended is the error of a
// flush or of a longer write, as with net/http. Kubernetes' watches log an error of Write, but end with their context
// without a word.
func (w *Response) Write(p []byte) (int, error) {
	hold := &w.x.conn.hold
	hold.mu.Lock()
	defer hold.mu.Unlock()
	if err := w.admit(len(p)); err != nil || len(p) == 0 {
		return 0, err
	}
	out := w.buffers()
	length := len(out.body) + len(p)
	if length > mostSilent {
		w.begin(p)
	}
	if length <= mostBuffered {
		if out.body = append(out.body, p...); w.begun && length > mostSilent {
			hold.begin(w)
		}
		return len(p), nil
	}
	if err := w.push(p); err != nil {
		return 0, err
	}
	return len(p), nil
}

// WriteString implements io.StringWriter.
func (w *Response) WriteString(s string) (int, error) { return w.Write([]byte(s)) }

// admit is called before n bytes of the body are written.
func (w *Response) admit(n int) error {
	switch {
	case w.Refused():
		return ErrDeclined
	case w.x.conn.hijacked:
		if n > 0 {
			w.logf("Write on a connection that has been taken over")
		}
		return http.ErrHijacked
	case w.done:
		return errDone
	}
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	if n == 0 {
		return nil
	}
	if !http1.BodyAllowed(w.status) {
		return http.ErrBodyNotAllowed
	}
	w.written += int64(n)
	if w.head.length >= 0 && w.written > w.head.length {
		return http.ErrContentLength
	}
	return nil
}

var errDone = errors.New("the handler has returned")

// ReadFrom implements io.ReaderFrom. When src has nothing more for now, what it had is not held back.
func (w *Response) ReadFrom(src io.Reader) (n int64, err error) {
	buf := buffers.Get()
	defer buffers.Put(buf)
	for {
		m, err := src.Read(*buf)
		if m > 0 {
			written, err := w.Write((*buf)[:m])
			if n += int64(written); err != nil {
				return n, err
			}
		}
		switch {
		case err == io.EOF:
			return n, nil
		case err != nil:
			return n, err
		case m < len(*buf):
			w.x.conn.hold.send()
		}
	}
}

// Flush implements http.Flusher.
func (w *Response) Flush() { _ = w.FlushError() }

// FlushError sends what has been written.
func (w *Response) FlushError() error {
	hold := &w.x.conn.hold
	hold.mu.Lock()
	defer hold.mu.Unlock()
	if err := w.admit(0); err != nil {
		return err
	}
	if !w.begun {
		w.x.conn.server.hangups.stream(w.x.conn)
	}
	w.begin(nil)
	err := w.push(nil)
	w.release()
	return err
}

// begin completes the head: what is buffered and p are the beginning of the body, all of it if the handler has returned.
func (w *Response) begin(p []byte) {
	if w.begun {
		return
	}
	w.begun = true
	w.fix()
	if w.fullDuplex && !w.done {
		w.expectation.ask(w.x.conn.socket)
	} else {
		w.expectation.cease()
	}
	out, head, allowed := w.buffers(), &w.head, http1.BodyAllowed(w.status)
	isHead := w.x.request.Method == http.MethodHead
	if w.done && allowed && !head.trailers && !head.transfer && head.length < 0 && (!isHead || len(out.body) > 0) {
		head.length = int64(len(out.body))
	}
	w.last = w.last || len(head.connection) > 0 && head.connection[0] == "close"
	w.settleBody()
	if allowed && !head.typed && !head.encoded && !head.transfer && len(out.body)+len(p) > 0 {
		out.head = http1.AppendField(out.head, "Content-Type", sniff(out.body, p))
	}
	switch {
	case head.length >= 0 && (!head.transfer || head.identity):
		out.head = append(out.head, "Content-Length: "...)
		out.head = append(strconv.AppendInt(out.head, head.length, 10), "\r\n"...)
	case !allowed || isHead:
	case head.identity:
		w.last = true
	default:
		w.chunked = true
		out.head = append(out.head, "Transfer-Encoding: chunked\r\n"...)
	}
	if w.last && w.status != http.StatusSwitchingProtocols && !http1.Listed(head.connection, "close") {
		head.connection = []string{"close"}
	}
	out.head = appendFields(out.head, "Connection", head.connection)
	out.head = append(out.head, "\r\n"...)
}

// sniff returns the type of a body that begins with a and b.
func sniff(a, b []byte) string {
	if len(a) == 0 {
		return http.DetectContentType(b)
	}
	const enough = 512 // of http.DetectContentType
	return http.DetectContentType(append(a[:len(a):len(a)], b[:min(len(b), enough)]...))
}

// settleBody receives what the handler has not read of the request's body, so that a client which sends all before it
// reads is not waited for, and the connection can take another request. It is what net/http does, which does not say in
// a full duplex that the connection ends.
func (w *Response) settleBody() {
	x := w.x
	switch {
	case x.length == 0 || w.last:
	case w.expectation.expects, w.fullDuplex: // the rest is not waited for
		w.last = !x.body.ended.Load()
	default:
		w.last = !x.body.settle()
	}
}

// push sends what is buffered, and p after it. The hold of the connection is locked, as for begin and release.
func (w *Response) push(p []byte) error {
	w.x.conn.hold.of = nil
	out := w.buffers()
	if w.x.request.Method == http.MethodHead {
		out.body, p = out.body[:0], nil
	}
	n := len(out.body) + len(p)
	if w.chunked && n > 0 {
		out.head = append(strconv.AppendInt(out.head, int64(n), 16), "\r\n"...)
	}
	if w.chunked && w.done {
		return w.pushLast(out, n)
	}
	if len(p) == 0 {
		out.head = append(out.head, out.body...)
		if w.chunked && n > 0 {
			out.head = append(out.head, "\r\n"...)
		}
		w.send(out.head)
	} else {
		w.sendAll(out, p)
	}
	out.head, out.body = out.head[:0], out.body[:0]
	return w.err
}

// pushLast sends what is buffered with the end of the body and its trailers.
func (w *Response) pushLast(out *output, n int) error {
	out.head = append(out.head, out.body...)
	if n > 0 {
		out.head = append(out.head, "\r\n"...)
	}
	out.head = append(out.head, "0\r\n"...)
	for _, key := range w.head.trailerNames {
		out.head = appendFields(out.head, key, w.header[key])
	}
	for key, values := range w.header {
		if name, ok := strings.CutPrefix(key, http.TrailerPrefix); ok {
			out.head = appendFields(out.head, name, values)
		}
	}
	out.head = append(out.head, "\r\n"...)
	w.send(out.head)
	return w.err
}

// sendAll sends what is buffered and p with one system call.
func (w *Response) sendAll(out *output, p []byte) {
	pieces := net.Buffers{out.head, out.body, p}
	if w.chunked {
		pieces = append(pieces, []byte("\r\n"))
	}
	if w.err == nil {
		_, err := pieces.WriteTo(w.x.conn.socket)
		w.fail(err)
	}
}

func (w *Response) send(p []byte) {
	if w.err == nil && len(p) > 0 {
		_, err := w.x.conn.socket.Write(p)
		w.fail(err)
	}
}

// fail keeps an error of the connection, which ends the request.
func (w *Response) fail(err error) {
	if err != nil {
		w.err = err
		w.x.ctx.end()
	}
}

// Conclude has the owner complete head and trailers when the handler has returned. The server does so, too, when the
// context of the request has ended.
func (w *Response) Conclude() {
	if w.concluded || w.x.conn.hijacked {
		return
	}
	w.concluded = true
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	w.x.conn.hold.mu.Lock()
	defer w.x.conn.hold.mu.Unlock()
	if w.fix(); w.Owner != nil && !w.declined {
		w.Owner.Trailers(w.header)
	}
}

// finish sends the rest of the response, and reports whether the connection can take another request as far as this is
// concerned.
func (w *Response) finish() bool {
	w.Conclude()
	hold := &w.x.conn.hold
	hold.mu.Lock()
	defer hold.mu.Unlock()
	w.done = true
	w.begin(nil)
	_ = w.push(nil)
	w.release()
	if w.x.deadlines {
		_ = w.x.conn.socket.SetDeadline(time.Time{})
	}
	short := w.x.request.Method != http.MethodHead && w.head.length >= 0 && http1.BodyAllowed(w.status) && w.head.length != w.written
	return w.err == nil && !w.last && !short && w.status != http.StatusSwitchingProtocols
}

// SetReadDeadline is for http.ResponseController.
func (w *Response) SetReadDeadline(t time.Time) error {
	w.x.deadlines = true
	return w.x.conn.socket.SetReadDeadline(t)
}

// SetWriteDeadline is for http.ResponseController.
func (w *Response) SetWriteDeadline(t time.Time) error {
	w.x.deadlines = true
	return w.x.conn.socket.SetWriteDeadline(t)
}

// EnableFullDuplex is for http.ResponseController.
func (w *Response) EnableFullDuplex() error {
	w.fullDuplex = true
	return nil
}

// CloseNotify implements http.CloseNotifier, without which k8s.io/apiserver does not stream.
func (w *Response) CloseNotify() <-chan bool { return w.gone.channel() }
