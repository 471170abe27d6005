package relay

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
)

// verdict is how an attempt ended.
type verdict int

const (
	answered verdict = iota + 1
	declined
	upgraded
	failed // with exchange.fail
	broken // the answer broke off after its beginning
)

// exchange is one request on its way through the chain. It belongs to the
// goroutine of the handler.
type exchange struct {
	chain *Chain
	w     http.ResponseWriter
	r     *http.Request
	id    uint64
	// more: another stage could get the request if this one declines.
	more bool
	// body is a buffered body, read is set once it has been read.
	body []byte
	read bool
	// begun: something of an answer has gone to the client.
	begun bool
	// unflushed: something has been written to the client since the last flush.
	unflushed bool

	// The attempt under way.
	stage  string
	c      *conn
	end    *Endpoint
	stop   func() bool // ends the watch over the context; false if it has fired
	upload *upload
	out    []byte
	answer answer
	fail   failure
}

// failure is why an attempt gave no answer.
type failure struct {
	kind Kind
	err  error
	// touched: part of the body that cannot be had again has been read.
	touched bool
}

var exchanges = sync.Pool{New: func() any { return new(exchange) }}

// keptBuffer is the largest buffer that goes back to the pool.
const keptBuffer = 128 << 10

func newExchange(c *Chain, w http.ResponseWriter, r *http.Request) *exchange {
	x := exchanges.Get().(*exchange)
	x.chain, x.w, x.r, x.id = c, w, r, c.flights.begin()
	return x
}

// release ends the exchange, also in the middle of it if a writer panics.
func (x *exchange) release() {
	x.drop()
	x.chain.flights.end(x.id)
	out, body, fields := x.out, x.body, x.answer.fields
	clear(fields[:cap(fields)])
	*x = exchange{}
	if cap(out) <= keptBuffer {
		x.out = out[:0]
	}
	if cap(body) <= keptBuffer {
		x.body = body[:0]
	}
	if cap(fields) <= 128 {
		x.answer.fields = fields[:0]
	}
	exchanges.Put(x)
}

// attempt sends the request to an endpoint and passes on the answer, on a new
// connection if redial is set.
func (x *exchange) attempt(e *Endpoint, redial bool) verdict {
	x.fail = failure{}
	if !x.prepare() {
		return failed
	}
	ctx := x.r.Context()
	c, err := e.get(ctx, redial)
	if err != nil {
		return x.failure(Unavailable, err)
	}
	x.c, x.end = c, e
	x.stop = context.AfterFunc(ctx, c.abort)
	defer x.drop()

	n, err := c.Write(x.out)
	lost := Lost
	if err != nil && n < len(x.out)-len(x.body) {
		lost = Unavailable // not even the whole head has arrived
	}
	expect := x.expect()
	if err == nil && streamed(x.r) && !expect {
		x.startUpload()
	}
	// Even a stage that takes no more may have answered.
	if err := x.readAnswer(expect); err != nil {
		return x.noAnswer(lost, err)
	}
	if x.answer.declined {
		if x.upload == nil {
			x.keep(&x.answer)
		}
		return declined
	}
	return x.respond()
}

// prepare writes the head, and the body if it is buffered, into x.out.
func (x *exchange) prepare() bool {
	if !x.read && hasBody(x.r) && !streamed(x.r) {
		body, err := appendBody(x.body[:0], x.r)
		if err != nil {
			x.failure(BadRequest, err)
			x.fail.touched = true
			return false
		}
		x.body, x.read = body, true
	}
	head, err := appendRequest(x.out[:0], x.r, x.id, x.expect(), x.chain.config.Carrier)
	if err != nil {
		x.failure(BadRequest, err)
		return false
	}
	x.out = append(head, x.body...)
	return true
}

// expect says whether the stage has to ask for the body.
func (x *exchange) expect() bool {
	return streamed(x.r) && (x.more || expectsContinue(x.r))
}

func (x *exchange) startUpload() {
	if x.r.ProtoMajor == 1 {
		// Without it, net/http reads the rest of the body before it sends an answer.
		_ = http.NewResponseController(x.w).EnableFullDuplex()
	}
	x.upload = startUpload(x.r, x.c)
}

// maxInformational bounds the informational answers to one request.
const maxInformational = 100

var errMalformed = errors.New("malformed")

// readAnswer reads the final head of the answer into x.answer.
func (x *exchange) readAnswer(expect bool) error {
	for range maxInformational {
		text, err := x.c.until("\r\n\r\n", maxHead)
		if errors.Is(err, errTooLong) {
			return fmt.Errorf("%w head: more than %d bytes", errMalformed, maxHead)
		}
		if err != nil {
			return err
		}
		if err := x.answer.parse(text); err != nil {
			return fmt.Errorf("%w head: %w", errMalformed, err)
		}
		switch status := x.answer.status; {
		case status == http.StatusSwitchingProtocols && x.upload != nil && !x.upload.finished():
			return fmt.Errorf("%w: switches the protocol in the middle of the request", errMalformed)
		case status == http.StatusSwitchingProtocols && upgradeOf(x.r.Header) == "":
			return fmt.Errorf("%w: switches the protocol without being asked", errMalformed)
		case status >= 200 || status == http.StatusSwitchingProtocols:
			return nil
		case status == http.StatusContinue:
			if expect && x.upload == nil {
				x.startUpload()
			}
		default:
			x.inform()
		}
	}
	return fmt.Errorf("%w: more than %d informational answers", errMalformed, maxInformational)
}

// inform passes on an informational answer, see the package's documentation.
func (x *exchange) inform() {
	if _, wrapped := x.w.(interface{ Unwrap() http.ResponseWriter }); wrapped || !x.r.ProtoAtLeast(1, 1) {
		return
	}
	h := x.w.Header()
	before := h.Clone()
	for _, f := range x.answer.fields {
		if !hopByHop(f.key) && !internal(f.key) && f.key != "Content-Length" {
			h.Add(f.key, f.value)
		}
	}
	x.w.WriteHeader(x.answer.status)
	x.begun = true
	clear(h)
	for key, values := range before {
		h[key] = values
	}
}

// noAnswer finds out why there is no answer.
func (x *exchange) noAnswer(lost Kind, err error) verdict {
	switch {
	case errors.Is(err, errMalformed):
		return x.failure(BadAnswer, err)
	case x.upload != nil && x.upload.finished() && x.upload.readErr != nil:
		return x.failure(BadRequest, fmt.Errorf("read the request body: %w", x.upload.readErr))
	default:
		return x.failure(lost, err)
	}
}

func (x *exchange) failure(kind Kind, err error) verdict {
	if ctx := x.r.Context(); kind != BadAnswer && ctx.Err() != nil {
		kind, err = Canceled, context.Cause(ctx)
	}
	x.fail = failure{kind: kind, err: err, touched: x.upload != nil}
	return failed
}

// respond passes on the answer whose head has been read.
func (x *exchange) respond() verdict {
	a := &x.answer
	x.begun = true
	if a.status == http.StatusSwitchingProtocols {
		return x.switchProtocols(a)
	}
	x.writeHeaders(a)
	if x.upload != nil && !x.upload.finished() && x.r.ProtoMajor == 1 {
		x.w.Header().Set("Connection", "close") // the client may stop sending
	}
	x.w.WriteHeader(a.status)
	x.unflushed = true
	if err := x.writeBody(x.c, a); err != nil {
		return broken
	}
	if x.upload != nil && !x.upload.finished() {
		x.flush()
	}
	x.keep(a)
	return answered
}

// keep puts the connection back into the pool if nothing speaks against it.
func (x *exchange) keep(a *answer) {
	if x.upload != nil {
		x.upload.finish(x.w)
	}
	clean := !a.last && len(x.c.buffered()) == 0 && x.ended(a) && x.bodySent()
	clean = x.stop() && clean
	x.end.put(x.c, clean)
	x.c, x.stop, x.upload = nil, nil, nil
}

// ended says whether the answer has been read to its end, which is not known of
// one that ends with the connection, nor of a decline with a body.
func (x *exchange) ended(a *answer) bool {
	switch {
	case x.r.Method == http.MethodHead || !bodyAllowed(a.status):
		return true
	case a.declined:
		return a.length == 0
	default:
		return a.chunked || a.length >= 0
	}
}

func (x *exchange) bodySent() bool {
	if x.upload != nil {
		return x.upload.finished() && x.upload.sent
	}
	return !streamed(x.r)
}

// drop closes the connection of an attempt that did not end well.
func (x *exchange) drop() {
	if x.c == nil {
		return
	}
	x.stop()
	x.c.abort()
	if x.upload != nil {
		x.upload.finish(x.w)
	}
	x.end.put(x.c, false)
	x.c, x.stop, x.upload = nil, nil, nil
}
