package relay

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/catena-dev/catena/host/internal/bounds"
	"github.com/catena-dev/catena/host/internal/relay/h1"
	"github.com/catena-dev/catena/sdk/stagev1/header"
)

// verdict is how an attempt ended.
type verdict int

const (
	responded verdict = iota + 1
	declined
	upgraded
	failed     // with request.failure
	broken     // the stage broke off its response
	clientGone // the client does not take the rest of the response
)

// responseGrace is how long an upload may go on before its response is passed on. When a
// stage responds, it has mostly read the body to its end, and only the goroutine that sent
// it has not reported that yet.
const responseGrace = 5 * time.Millisecond

// attempt sends the request to an endpoint and passes on the response, on a new
// connection if redial is set.
func (x *request) attempt(e *endpoint, redial bool) verdict {
	x.failure = failure{}
	if err := x.prepare(); err != nil {
		return x.fail(BadRequest, err)
	}
	ctx := x.r.Context()
	c, err := e.get(ctx, redial, waiter{len(x.message.out), x.r})
	if err != nil {
		return x.fail(Unavailable, err)
	}
	x.conn, x.endpoint = c, e
	x.unwatch = context.AfterFunc(ctx, c.Abort)
	defer x.drop()

	send := (*h1.Conn).Send
	if x.streamed { // more of the request follows
		send = (*h1.Conn).Write
	}
	n, err := send(c, x.message.out)
	lost := Lost
	if err != nil && n < len(x.message.out)-len(x.message.body) {
		lost = Unavailable // not even the whole head has arrived
	}
	expect := x.expectsContinue()
	if err == nil && x.streamed && !expect {
		x.upload = c.StartUpload(x.r)
	}
	// Even a stage that takes no more may have responded.
	if err := x.readResponse(expect); err != nil {
		return x.noResponse(lost, err)
	}
	if e.refusal != "" && x.response.Undelivered == e.refusal {
		return x.fail(Unavailable, errUndelivered)
	}
	if x.chain.comesTooEarly(x.r, x.snapshot, e) { // the process has taken the request from the backlog of the one before
		return x.fail(Unavailable, ErrIncomplete)
	}
	handedOn := !safe(x.r) && x.role.hasWritten()
	if x.response.Declined {
		if handedOn {
			return x.fail(BadResponse, errHandedOn)
		}
		return x.decline()
	}
	if x.beyondMissing && !handedOn && x.response.Status == http.StatusNotFound && x.upload == nil {
		return declined // its body is dropped with the connection
	}
	if x.isLate() {
		return x.fail(Canceled, context.DeadlineExceeded) // the filter that has set the deadline responds
	}
	return x.respond()
}

// deadlineSkew is by how much a stage may be ahead of the host with a deadline.
const deadlineSkew = 20 * time.Millisecond

// isLate reports whether the deadline of the request has passed. A stage that responds with an error of its own may
// have noticed that a moment earlier: that is awaited. The start of its response, and then the filter that has set the
// deadline, would break the connection to the client.
func (x *request) isLate() bool {
	ctx := x.r.Context()
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return true
	}
	if x.response.Status < http.StatusInternalServerError { // a proxy may have another one than 504 for it
		return false
	}
	deadline, ok := ctx.Deadline()
	if !ok || time.Until(deadline) > deadlineSkew {
		return false
	}
	<-ctx.Done()
	return errors.Is(ctx.Err(), context.DeadlineExceeded)
}

// prepare reads the body, unless it is streamed, and encodes the message.
func (x *request) prepare() error {
	m := x.message
	if !x.streamed && !m.read && hasBody(x.r) {
		if err := x.readAhead(); err != nil {
			return err
		}
	}
	if x.watch == nil {
		x.watch = newWatch(x)
	}
	r := x.r
	if x.watch != nil {
		r = x.watch.request()
	}
	propagator := x.chain.config.Propagator
	out, err := h1.AppendRequest(m.out[:0], r, x.expectsContinue(), propagator)
	if err != nil {
		return err
	}
	out = append(out, header.Request+": "...)
	out = strconv.AppendUint(out, x.id, 10)
	out = append(out, '\r', '\n')
	if x.expectsContinue() && !expectsContinue(x.r) {
		out = append(out, header.Added+": Expect\r\n"...)
	}
	if x.streamed && duplex(x.r) {
		out = append(out, header.Duplex+": true\r\n"...)
	}
	if x.watch != nil && x.watch.asks() {
		out = append(out, header.Watch+": true\r\n"...)
	}
	if x.alone {
		out = append(append(append(out, header.Delegate+": "...), x.stage...), '\r', '\n')
	}
	if propagator != nil {
		out = propagator.AppendRequestHeaders(out, x.r)
	}
	m.out = append(append(out, '\r', '\n'), m.body...)
	return nil
}

// expectsContinue reports whether the stage has to ask for the body, because another stage
// needs it whole if this one declines, or because the stage may well not need it.
func (x *request) expectsContinue() bool {
	return x.streamed && (x.more || expectsContinue(x.r) || safeMethod(x.r.Method))
}

// duplex reports whether the client may go on with the body of r when the response has begun, and waits for neither:
// over HTTP/2, and when a stage hands such a request on.
func duplex(r *http.Request) bool { return r.ProtoMajor >= 2 || r.Context().Value(duplexKey{}) != nil }

type duplexKey struct{}

var errHandedOn = errors.New("it declines a request that writes, and has handed it on before")

var errUndelivered = errors.New("its process ended before it could take the request")

// readResponse reads the head of the final response into x.response.
func (x *request) readResponse(expect bool) error {
	for range bounds.Informational {
		if err := x.conn.ReadResponse(x.r.Context(), &x.response); err != nil {
			return err
		}
		switch status := x.response.Status; {
		case status == http.StatusSwitchingProtocols && x.upload != nil && !x.upload.Finished():
			return fmt.Errorf("%w: switches the protocol in the middle of the request", h1.ErrMalformed)
		case status == http.StatusSwitchingProtocols && h1.UpgradeOf(x.r) == "":
			return fmt.Errorf("%w: switches the protocol without being asked", h1.ErrMalformed)
		case status >= 200 || status == http.StatusSwitchingProtocols:
			return nil
		case status == http.StatusContinue:
			if expect && x.upload == nil {
				x.upload = x.conn.StartUpload(x.r)
			}
		default:
			x.inform()
		}
	}
	return fmt.Errorf("%w: more than %d informational responses", h1.ErrMalformed, bounds.Informational)
}

// noResponse ends an attempt to which there was no response.
func (x *request) noResponse(lost Kind, err error) verdict {
	if errors.Is(err, h1.ErrMalformed) || errors.Is(err, h1.ErrNoRoom) {
		return x.fail(BadResponse, err)
	}
	if x.upload != nil && x.upload.ReadErr() != nil {
		return x.fail(BadRequest, fmt.Errorf("read the request body: %w", x.upload.ReadErr()))
	}
	return x.fail(lost, err)
}

func (x *request) fail(kind Kind, err error) verdict {
	if ctx := x.r.Context(); kind != BadResponse && ctx.Err() != nil {
		kind, err = Canceled, context.Cause(ctx)
	}
	if kind == Unavailable && x.role.hasWritten() {
		kind = Lost
	}
	x.failure = failure{kind: kind, err: err, touched: x.upload != nil}
	return failed
}

// decline ends an attempt that the stage has declined. What the stage has to report to the
// host counts all the same, and its warnings join those of the stage that responds.
func (x *request) decline() verdict {
	for _, f := range x.response.Fields {
		if h1.HostOnly(f.Key) {
			x.report(f)
		} else if f.Key == "Warning" && fits(x, &x.sent.warnings, len(f.Value), bounds.DeclineWarnings) {
			x.w.Header().Add("Warning", strings.Clone(f.Value)) // neither is a part of the head, which may be large
		}
	}
	switch {
	case x.upload == nil:
		x.keep()
	case x.more:
		return x.fail(BadResponse, errors.New("it has declined after asking for the body"))
	default:
		x.consumed = true
	}
	return declined
}

// respond passes on the response whose head has been read.
func (x *request) respond() verdict {
	x.begun = true
	x.releaseMessage()
	if isRaw(x.r, &x.response, x.upload) {
		return x.takeOver()
	}
	x.writeHeaders()
	if x.watch != nil && x.response.Chunked {
		x.watch.begin()
	}
	if x.r.ProtoMajor == 1 {
		x.closeOrKeepClient()
	}
	x.w.WriteHeader(x.response.Status)
	err := x.writeBody()
	switch {
	case err == nil:
	case errors.Is(err, errClientGone), errors.Is(x.r.Context().Err(), context.Canceled):
		return clientGone
	case errors.Is(err, h1.ErrCutOff), errors.Is(err, errWatchOver):
		return responded // its connection is dropped
	default:
		x.limited(err)
		return broken
	}
	if x.upload != nil && !x.upload.Finished() || x.conn.HoldsHead() && !x.sent.flushed {
		x.Flush() // of a large head, what it has taken is given back when the client has it
	}
	x.keep()
	return responded
}
