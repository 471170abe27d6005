package sdk

import (
	"maps"
	"net/http"

	"github.com/catena-dev/catena/sdk/stagev1"
)

// Decline tells the host that the request is not for this stage: the host sends it to the
// next one. It takes the place of a response, so the handler must not have begun one,
// and writes after it fail. The handler must not have read from the request's body
// either, or the status is 500. Env.Next declines by itself where it can.
func Decline(w http.ResponseWriter) {
	if x := exchangeOf(w); x != nil {
		x.decline()
		return
	}
	h := w.Header()
	clear(h)
	maps.Copy(h, declined())
	h[hiddenDecline] = []string{"1"}
	w.WriteHeader(http.StatusNotFound)
}

func (x *exchange) decline() {
	if already, _ := x.writer.Declined(); already {
		return
	}
	if x.writer.Begun() {
		panic("stage declines a request after its response has begun")
	}
	if x.writer.BodyRead() {
		panic("stage declines a request after reading from its body; the next stage would miss it")
	}
	h := declined()
	x.addNotices(h)
	x.writer.Decline(http.StatusNotFound, h)
}

// hiddenDecline is HeaderDecline for a writer that wraps the response without Unwrap. No
// server that a handler proxies to can have sent this key: net/http makes the keys that it
// reads canonical, and setHostHeaders drops those.
const hiddenDecline = "x-catena-decline"

// declined returns the head of what the host takes for a decline. The host ignores the status; it is
// for people who connect to the socket themselves.
func declined() http.Header {
	return http.Header{stagev1.HeaderDecline: {"1"}, "Content-Length": {"0"}}
}
