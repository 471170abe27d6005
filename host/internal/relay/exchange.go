package relay

import (
	"net/http"
	"sync"
	"sync/atomic"
)

// verdict is how an attempt ended.
type verdict int

const (
	answered verdict = iota + 1
	declined
	upgraded
	failed // with exchange.fail
	broken // the stage broke off its answer
	gone   // the client is not there to get the rest of the answer
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
	// message is what goes to the stage; nil once the answer has come, because that
	// may take long.
	message *message
	// begun: something of an answer has gone to the client.
	begun bool
	// leftover: sending the body was given up before its end.
	leftover bool
	// consumed: a stage has declined after it was sent of a body that cannot be had again.
	consumed bool
	// unflushed: something has been written to the client since the last flush;
	// flushed: there has been a flush.
	unflushed, flushed bool
	flushFunc          func() // flush as a function value

	// at is the stage's part of the trail; nil if nobody wants to know.
	at *trailHop
	// called says that the stage has called the next one; it is the trail's, or mark.
	called *atomic.Bool
	mark   atomic.Bool

	// The attempt under way.
	stage  string
	c      *conn
	end    *Endpoint
	stop   func() bool // ends the watch over the context; false if it has fired
	upload *upload
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

// message is a request as it is written to a stage.
type message struct {
	// body is the body if it is not streamed, once read is set.
	body []byte
	read bool
	// out is the head, followed by the body.
	out []byte
}

var (
	exchanges = sync.Pool{New: func() any {
		x := new(exchange)
		x.flushFunc = x.flush
		return x
	}}
	messages = sync.Pool{New: func() any { return new(message) }}
)

// Larger buffers do not go back to the pools.
const (
	keptBytes  = 128 << 10
	keptFields = 128
)

func newExchange(c *Chain, w http.ResponseWriter, r *http.Request) *exchange {
	x := exchanges.Get().(*exchange)
	x.chain, x.w, x.r, x.id = c, w, r, c.flights.begin()
	x.message = messages.Get().(*message)
	return x
}

// release ends the exchange, also in the middle of it if a writer panics.
func (x *exchange) release() {
	x.drop()
	x.chain.flights.end(x.id)
	x.releaseMessage()
	fields := x.answer.fields
	clear(fields)
	*x = exchange{flushFunc: x.flushFunc}
	if cap(fields) <= keptFields {
		x.answer.fields = fields[:0]
	}
	exchanges.Put(x)
}

// releaseMessage says that the request will not be sent again.
func (x *exchange) releaseMessage() {
	m := x.message
	if x.message = nil; m != nil && cap(m.body) <= keptBytes && cap(m.out) <= keptBytes {
		*m = message{body: m.body[:0], out: m.out[:0]}
		messages.Put(m)
	}
}

// leave takes the request from its stage: an answer of the host's own follows.
func (x *exchange) leave() {
	x.chain.flights.end(x.id)
	if x.leftover {
		x.closeClient()
	}
}

// closeClient tells an HTTP/1 client that its connection will end with the answer.
// It may then stop sending its body; and the server sends the answer at once, instead
// of reading the body first.
func (x *exchange) closeClient() {
	if x.r.ProtoMajor == 1 {
		x.w.Header().Set("Connection", "close")
	}
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
		x.leftover = !x.upload.sent
	}
	x.end.put(x.c, false)
	x.c, x.stop, x.upload = nil, nil, nil
}
