package relay

import (
	"context"
	"errors"
	"fmt"
	"net/http"
)

// attempt sends the request to an endpoint and passes on the answer, on a new
// connection if redial is set.
func (x *exchange) attempt(e *Endpoint, redial bool) verdict {
	x.fail = failure{}
	if !x.prepare() {
		return failed
	}
	ctx := x.r.Context()
	c, err := e.get(ctx, redial, len(x.message.out))
	if err != nil {
		return x.failure(Unavailable, err)
	}
	x.c, x.end = c, e
	x.stop = context.AfterFunc(ctx, c.abort)
	defer x.drop()

	n, err := c.Write(x.message.out)
	lost := Lost
	if err != nil && n < len(x.message.out)-len(x.message.body) {
		lost = Unavailable // not even the whole head has arrived
	}
	expect := x.expect()
	if err == nil && streamed(x.r) && !expect {
		x.upload = startUpload(x.r, c)
	}
	// Even a stage that takes no more may have answered.
	if err := x.readAnswer(expect); err != nil {
		return x.noAnswer(lost, err)
	}
	if e.refusal != "" && x.answer.refusal == e.refusal {
		return x.failure(Unavailable, errUndelivered)
	}
	if x.answer.declined {
		return x.decline()
	}
	if err := x.r.Context().Err(); errors.Is(err, context.DeadlineExceeded) {
		return x.failure(Canceled, err) // the filter that has set the deadline answers
	}
	return x.respond()
}

// decline ends an attempt that the stage has declined.
func (x *exchange) decline() verdict {
	x.takeNotes()
	switch {
	case x.upload == nil:
		x.keep(&x.answer)
	case x.more:
		return x.failure(BadAnswer, errors.New("it has declined after asking for the body"))
	default:
		x.consumed = true
	}
	return declined
}

// prepare reads the body, unless it is streamed, and writes the message.
func (x *exchange) prepare() bool {
	m := x.message
	if !m.read && hasBody(x.r) && !streamed(x.r) {
		body, err := appendBody(m.body[:0], x.r)
		if err != nil {
			x.failure(BadRequest, err)
			return false
		}
		m.body, m.read = body, true
	}
	head, err := appendRequest(m.out[:0], x.r, x.id, x.expect(), x.chain.config.Carrier)
	if err != nil {
		x.failure(BadRequest, err)
		return false
	}
	m.out = append(head, m.body...)
	return true
}

// expect says whether the stage has to ask for the body.
func (x *exchange) expect() bool {
	return streamed(x.r) && (x.more || expectsContinue(x.r))
}

// maxInformational bounds the informational answers to one request.
const maxInformational = 100

var errUndelivered = errors.New("its process ended before it could take the request")

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
		case status == http.StatusSwitchingProtocols && upgradeOf(x.r) == "":
			return fmt.Errorf("%w: switches the protocol without being asked", errMalformed)
		case status >= 200 || status == http.StatusSwitchingProtocols:
			return nil
		case status == http.StatusContinue:
			if expect && x.upload == nil {
				x.upload = startUpload(x.r, x.c)
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
	x.releaseMessage()
	if a.status == http.StatusSwitchingProtocols {
		return x.switchProtocols(a)
	}
	x.writeHeaders(a)
	if x.upload != nil && x.r.ProtoMajor == 1 && !x.upload.endsWithin(answerGrace) {
		x.closeClient()
	}
	x.w.WriteHeader(a.status)
	x.unflushed = true
	if err := x.writeBody(x.c, a); err != nil {
		return x.cutOff(err)
	}
	if x.upload != nil && !x.upload.finished() {
		x.flush()
	}
	x.keep(a)
	return answered
}

// cutOff finds out which end has broken off an answer.
func (x *exchange) cutOff(err error) verdict {
	if errors.Is(err, errClientGone) || errors.Is(x.r.Context().Err(), context.Canceled) {
		return gone
	}
	return broken
}
