package sdk

import (
	"net/http"

	"github.com/catena-dev/catena/sdk/stagev1"
)

// Decline tells the host that the request is not for this stage: the host asks the
// next one. It takes the place of an answer, so the handler must not have begun one,
// and writes after it fail. The handler must not have read of the request's body
// either, or the answer is 500. Env.Next declines by itself where it can.
func Decline(w http.ResponseWriter) {
	if x := exchangeOf(w); x != nil {
		x.decline()
		return
	}
	writeDecline(w, nil)
}

func (x *exchange) decline() {
	if x.declined {
		return
	}
	if x.answered {
		panic("stage declines a request after it has begun to answer it")
	}
	if x.bodyRead.Load() {
		panic("stage declines a request after it has read of its body; the next stage would miss it")
	}
	x.answered, x.declined = true, true
	writeDecline(x.writer, x)
}

// refuse tells whether the request has been declined, so that it cannot be answered.
func (x *exchange) refuse() bool {
	x.afterwards = x.afterwards || x.declined
	return x.declined
}

// ownDecline is HeaderDecline for a writer that hides the exchange. No server that a
// handler proxies to can have sent this key: net/http makes those canonical that it
// reads, and ownHeaders drops these.
const ownDecline = "x-catena-decline"

// writeDecline writes what the host takes for a decline. The status is for people who
// talk to the socket themselves.
func writeDecline(w http.ResponseWriter, x *exchange) {
	h := w.Header()
	clear(h)
	h[stagev1.HeaderDecline] = []string{"1"}
	if x == nil {
		h[ownDecline] = []string{"1"}
	}
	h["Content-Length"] = []string{"0"}
	if x != nil {
		x.writeNotes(h)
	}
	w.WriteHeader(http.StatusNotFound)
}
