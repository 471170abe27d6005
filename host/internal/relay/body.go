package relay

import (
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/catena-dev/catena/internal/http1"
)

// maxBuffered is the longest body, in bytes, that is read before the request is sent on.
const maxBuffered = 64 << 10

// hasBody reports whether there may be a body to send.
func hasBody(r *http.Request) bool {
	return r.Body != nil && r.Body != http.NoBody && r.ContentLength != 0
}

// readsAhead reports whether the body of r is read before the request is sent on. That of
// a safe method is not, since it means nothing: as in kube-apiserver, a watch whose client
// announces a body and does not send it begins, and gives back its seat of priority and
// fairness. Nor is that of a request without a deadline, which could wait for it for
// ever. A client that waits for "100 Continue" gets the stage's.
func readsAhead(r *http.Request) bool {
	if !hasBody(r) || safeMethod(r.Method) || r.ContentLength < 0 || r.ContentLength > maxBuffered || expectsContinue(r) {
		return false
	}
	_, ok := r.Context().Deadline()
	return ok
}

// safeMethod reports whether a method changes nothing. A body means nothing with it.
func safeMethod(method string) bool {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return true
	}
	return false
}

func expectsContinue(r *http.Request) bool {
	return http1.Listed(r.Header["Expect"], "100-continue")
}

// readAhead reads the body of the request, whose length is known, into the message. It gives
// up at the request's deadline.
func (x *request) readAhead() error {
	m := x.message
	n := int(x.r.ContentLength)
	if cap(m.body) < n {
		m.body = make([]byte, n)
	}
	deadline, _ := x.r.Context().Deadline()
	if left := time.Until(deadline); x.ahead.timer == nil {
		x.ahead = ahead{time.AfterFunc(left, x.stopReading), make(chan struct{})}
	} else {
		x.ahead.timer.Reset(left)
	}
	defer func() {
		if !x.ahead.timer.Stop() {
			<-x.ahead.stopped
		}
	}()
	if _, err := io.ReadFull(x.r.Body, m.body[:n]); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return fmt.Errorf("read the request body: %w", err)
	}
	m.body, m.read = m.body[:n], true
	return nil
}

// stopReading makes reading the body fail once the request's deadline has passed.
func (x *request) stopReading() {
	<-x.r.Context().Done()
	_ = http.NewResponseController(x.w).SetReadDeadline(time.Unix(1, 0))
	x.ahead.stopped <- struct{}{}
}
