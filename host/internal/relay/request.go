package relay

import (
	"net/http"
	"sync"
	"time"

	"github.com/catena-dev/catena/host/internal/relay/h1"
)

// request is one request of a client on its way through the chain. It belongs to the
// goroutine of the handler.
type request struct {
	chain *Chain
	w     http.ResponseWriter
	r     *http.Request
	id    uint64

	// snapshot is the chain as it was when the request came. Its order is kept; where a
	// stage can be reached is looked up when it is its turn.
	snapshot *snapshot
	// after is the stage downstream of which routing begins; empty for the whole chain.
	after string
	// alone: the request is for one stage, whatever it claims.
	alone bool
	// asked are the stages that have declined.
	asked []string
	// beyondMissing: a response that something is not found counts as declined.
	beyondMissing bool
	// more: another stage could get the request if this one declines.
	more bool

	// message is what goes to the stage; nil once the response has come, because that
	// may take long.
	message *message
	// streamed: the body is sent while it is being read; see readsAhead.
	streamed bool
	// leftover: sending the body was given up before its end.
	leftover bool
	// consumed: a stage has declined after it was sent a part of a streamed body.
	consumed bool

	// begun: something of a response has gone to the client.
	begun bool
	// sent is what the client has got.
	sent sent

	// watch is that of a client; nil if the request is for none.
	watch *watch

	// logged is the stage's entry in the request's HopLog; nil if it has none.
	logged *loggedHop
	// role is that of logged, or mark.
	role *role
	mark role

	// The current attempt. split: Hop.Request is set.
	stage string
	// kubernetes is Stage.Kubernetes.
	kubernetes bool
	began      time.Time
	split      bool
	endpoint   *endpoint
	conn       *h1.Conn
	unwatch    func() bool // ends the watch over the context; false if it has ended
	upload     *h1.Upload
	response   h1.Response
	failure    failure

	// ahead is used again.
	ahead ahead
}

// ahead is what readAhead needs: timer ends it, and stopped reports that.
type ahead struct {
	timer   *time.Timer
	stopped chan struct{}
}

// sent is what a client has got of the responses to its request.
type sent struct {
	// flushed: the client's writer has been flushed.
	flushed bool
	// written is how much of the response's body has been written, in bytes.
	written int
	// warnings and trailers are the bytes of those that stages have sent which have declined, and of trailers, also of
	// those that are left out.
	warnings, trailers int
}

// failure is why an attempt got no response.
type failure struct {
	kind Kind
	err  error
	// touched: part of a streamed body has been read.
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
	requests = sync.Pool{New: func() any { return new(request) }}
	messages = sync.Pool{New: func() any { return new(message) }}
)

// keptBytes is up to where buffers go back to the pools.
const keptBytes = 128 << 10

func newRequest(c *Chain, w http.ResponseWriter, r *http.Request, s *snapshot) *request {
	x := requests.Get().(*request)
	x.chain, x.w, x.r, x.snapshot, x.id = c, w, r, s, c.inFlight.newID()
	x.message = messages.Get().(*message)
	x.streamed = hasBody(r) && !readsAhead(r)
	return x
}

// release ends the request, also in the middle of it if a writer panics.
func (x *request) release() {
	x.drop()
	x.chain.inFlight.remove(x.id)
	x.chain.auditParts.release(x.id)
	x.releaseMessage()
	x.response.Forget()
	*x = request{ahead: x.ahead, response: h1.Response{Fields: x.response.Fields}}
	requests.Put(x)
}

// releaseMessage gives the message back: the request will not be sent again.
func (x *request) releaseMessage() {
	m := x.message
	if x.message = nil; m != nil && cap(m.body) <= keptBytes && cap(m.out) <= keptBytes {
		*m = message{body: m.body[:0], out: m.out[:0]}
		messages.Put(m)
	}
}

// leaveStage takes the request from its stage: a response of the host's own follows.
func (x *request) leaveStage() {
	x.chain.inFlight.remove(x.id)
	if x.leftover {
		x.closeClient()
	}
}

// closeClient tells an HTTP/1 client that its connection will end with the response.
// It may then stop sending its body; and the server sends the response at once, instead
// of reading the body first.
func (x *request) closeClient() {
	if x.r.ProtoMajor == 1 {
		x.w.Header().Set("Connection", "close")
	}
}

// closeOrKeepClient tells an HTTP/1 client whether its connection ends with the response that begins: it does if the
// body is still being sent. In a full duplex the server reads none of the rest, which would be taken for the next
// request.
func (x *request) closeOrKeepClient() {
	switch {
	case x.upload != nil && !x.upload.FinishedWithin(responseGrace):
		x.closeClient()
	case duplex(x.r) && (!x.streamed || x.upload != nil && x.upload.Sent()):
		x.w.Header().Del("Connection")
	}
}

// keep ends an attempt whose response has been read, and puts the connection back into
// the pool if it can be used again.
func (x *request) keep() {
	sent := !x.streamed
	if x.upload != nil {
		x.upload.Finish(x.w)
		sent = x.upload.Sent()
	}
	x.conn.FreeHead()
	watched := x.unwatch()
	switch reusable := watched && sent && x.conn.Reusable(&x.response, x.r.Method); {
	case reusable && !x.endpoint.discards && (x.upload != nil || !x.streamed && hasBody(x.r)):
		x.endpoint.spend(x.conn)
	default:
		if watched && x.conn.SaysMore(&x.response) {
			x.endpoint.strayed()
		}
		x.endpoint.put(x.conn, reusable)
	}
	x.response.Forget()
	x.conn, x.unwatch, x.upload = nil, nil, nil
}

// drop closes the connection of an attempt that did not end well.
func (x *request) drop() {
	if x.conn == nil {
		return
	}
	x.unwatch()
	x.conn.Abort()
	if x.upload != nil {
		x.upload.Finish(x.w)
		x.leftover = !x.upload.Sent()
	}
	x.response.Forget()
	x.endpoint.put(x.conn, false)
	x.conn, x.unwatch, x.upload = nil, nil, nil
}
