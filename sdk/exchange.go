package sdk

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/catena-dev/catena/sdk/stagev1"
)

// exchange is a request from the host with its answer. It is the ResponseWriter that
// the stage's handler gets, and the contexts of the request lead to it.
type exchange struct {
	writer http.ResponseWriter
	// id is the host's name for the request.
	id string
	// arrived is the request as it came.
	arrived  shape
	bodyRead atomic.Bool

	early early
	// answered: the final status has been written, or the connection taken over.
	answered bool
	declined bool
	hijacked net.Conn
	// afterwards: the handler has tried to answer what it had declined.
	afterwards bool

	// forHost are headers of the answer for the host, see SetHostHeader.
	forHost http.Header

	userHeader string
	auditLevel string
	cancel     context.CancelFunc
	drain      *drain

	mu     sync.Mutex
	user   *User         // parsed at the first need
	signal chan struct{} // of the drain, from the first need on
	over   bool
	// annotations and warnings wait for the head of the answer.
	annotations map[string]string
	warnings    []string
}

var errDeclined = errors.New("the request was declined: its answer cannot be written any more")

// newExchange returns the exchange for a request from the host, and the request to
// hand to the stage's handler.
func newExchange(w http.ResponseWriter, r *http.Request, d *drain) (*exchange, *http.Request) {
	x := &exchange{
		writer: w, drain: d,
		id:         r.Header.Get(stagev1.HeaderRequest),
		userHeader: r.Header.Get(stagev1.HeaderUser),
		auditLevel: r.Header.Get(stagev1.HeaderAuditLevel),
	}
	ctx := r.Context()
	ctx, x.cancel = withTimeout(ctx, r.Header.Get(stagev1.HeaderTimeout))
	// net/http looks at its own request for the body, so that one stays as it is.
	r = r.WithContext(context.WithValue(withTrace(ctx, r.Header), exchangeKey{}, x))
	if r.Body != http.NoBody {
		r.Body = &watchedBody{ReadCloser: r.Body, read: &x.bodyRead, lost: &x.early.lost}
	}
	x.arrived = shapeOf(r)
	x.early.held = r.ContentLength != 0 && r.Header.Get("Expect") != ""
	return x, r
}

// release is called when the handler has returned.
func (x *exchange) release() {
	x.cancel()
	x.mu.Lock()
	defer x.mu.Unlock()
	x.over = true
	if x.signal != nil {
		x.drain.forget(x.signal)
	}
}

// from returns who made the request, nil if the host does not say.
func (x *exchange) from() *User {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.user == nil {
		x.user = parseUser(x.userHeader)
	}
	return x.user
}

func (x *exchange) draining() <-chan struct{} {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.signal == nil && !x.over {
		x.signal = x.drain.signal()
	}
	return x.signal
}

// maxTimeout keeps the arithmetic with durations from overflowing.
const maxTimeout = 1 << 40

func withTimeout(ctx context.Context, millis string) (context.Context, context.CancelFunc) {
	ms, err := strconv.ParseInt(millis, 10, 64)
	if err != nil || ms > maxTimeout {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, time.Duration(ms)*time.Millisecond)
}

type exchangeKey struct{}

// exchangeFrom returns the exchange that ctx belongs to, or nil.
func exchangeFrom(ctx context.Context) *exchange {
	x, _ := ctx.Value(exchangeKey{}).(*exchange)
	return x
}

// exchangeOf returns the exchange behind a writer that may be wrapped, or nil.
func exchangeOf(w http.ResponseWriter) *exchange {
	for {
		switch v := w.(type) {
		case *exchange:
			return v
		case interface{ Unwrap() http.ResponseWriter }:
			w = v.Unwrap()
		default:
			return nil
		}
	}
}

// untouched tells whether r is still the request that the host has sent, and its
// answer has not begun.
func (x *exchange) untouched(r *http.Request) bool {
	return !x.answered && len(x.writer.Header()) == 0 && !x.bodyRead.Load() && shapeOf(r) == x.arrived
}

// watchedBody notes whether anybody has read of it.
type watchedBody struct {
	io.ReadCloser
	read *atomic.Bool
	lost *atomic.Bool // see early
}

func (b *watchedBody) Read(p []byte) (int, error) {
	b.read.Store(true)
	if b.lost.Load() {
		return 0, http.ErrBodyReadAfterClose
	}
	return b.ReadCloser.Read(p)
}

// What follows makes the exchange all that net/http's own writer is. CloseNotify is
// among it because k8s.io/apiserver only streams to writers that have it.

// begin is called before the head of the final answer is written.
func (x *exchange) begin() {
	if !x.answered {
		x.answered = true
		x.ownHeaders(x.writer.Header())
	}
}

// end is called when the handler has returned without a panic.
func (x *exchange) end() {
	switch {
	case x.hijacked != nil, x.declined:
	case x.answered:
		x.letGo()
		x.ownTrailers(x.writer.Header())
	default:
		x.begin() // the server writes the head
	}
}

func (x *exchange) Unwrap() http.ResponseWriter { return x.writer }

func (x *exchange) Header() http.Header { return x.writer.Header() }

func (x *exchange) WriteHeader(code int) {
	if x.refuse() {
		return
	}
	if code >= http.StatusOK || code == http.StatusSwitchingProtocols {
		x.begin()
	}
	if !x.keepHead(code) {
		x.writer.WriteHeader(code)
	}
}

func (x *exchange) Write(p []byte) (int, error) {
	if x.refuse() {
		return 0, errDeclined
	}
	x.begin()
	if x.keep(p) {
		return len(p), nil
	}
	return x.writer.Write(p)
}

func (x *exchange) WriteString(s string) (int, error) {
	if x.refuse() {
		return 0, errDeclined
	}
	x.begin()
	if x.keep([]byte(s)) {
		return len(s), nil
	}
	return io.WriteString(x.writer, s)
}

func (x *exchange) ReadFrom(r io.Reader) (int64, error) {
	if x.refuse() {
		return 0, errDeclined
	}
	if x.waits() {
		return io.Copy(struct{ io.Writer }{x}, r)
	}
	x.begin()
	x.letGo()
	return io.Copy(x.writer, r)
}

func (x *exchange) Flush() { _ = x.FlushError() }

func (x *exchange) FlushError() error {
	if x.refuse() {
		return errDeclined
	}
	x.begin()
	x.letGo()
	return http.NewResponseController(x.writer).Flush()
}

func (x *exchange) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	if x.refuse() {
		return nil, nil, errDeclined
	}
	header := x.writer.Header()
	x.ownHeaders(header) // for who writes the head from it
	conn, buffered, err := http.NewResponseController(x.writer).Hijack()
	if err != nil {
		return nil, nil, err
	}
	x.answered, x.hijacked = true, conn
	filter := &takenOver{Conn: conn, own: header[stagev1.HeaderAudit]}
	buffered.Writer.Reset(filter)
	return filter, buffered, nil
}

func (x *exchange) CloseNotify() <-chan bool {
	if n, ok := x.writer.(interface{ CloseNotify() <-chan bool }); ok {
		return n.CloseNotify()
	}
	return nil
}
