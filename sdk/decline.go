package sdk

import (
	"net/http"

	"github.com/catena-dev/catena/sdk/stagev1"
)

// Decline tells the host that the request is not for this stage: the host sends it to the
// next one. It takes the place of a response, so the handler must not have begun one,
// and writes after it fail. The handler must not have read from the request's body
// either, or the status is 500. Env.Next declines by itself where it can.
func Decline(w http.ResponseWriter) {
	if resp := responseOf(w); resp != nil {
		resp.decline()
		return
	}
	writeDecline(w, nil)
}

func (w *response) decline() {
	if w.declined {
		return
	}
	if w.began {
		panic("stage declines a request after its response has begun")
	}
	if w.buffer.bodyRead.Load() {
		panic("stage declines a request after reading from its body; the next stage would miss it")
	}
	w.began, w.declined = true, true
	writeDecline(w.writer, w)
}

// refuseDeclined reports whether the request has been declined, so that no response can be
// written, and records the attempt.
func (w *response) refuseDeclined() bool {
	w.writtenAfterDecline = w.writtenAfterDecline || w.declined
	return w.declined
}

// hiddenDecline is HeaderDecline for a writer that wraps the response without Unwrap. No
// server that a handler proxies to can have sent this key: net/http makes the keys that it
// reads canonical, and setHostHeaders drops those.
const hiddenDecline = "x-catena-decline"

// writeDecline writes what the host takes for a decline. The host ignores the status; it is
// for people who connect to the socket themselves.
func writeDecline(w http.ResponseWriter, resp *response) {
	h := w.Header()
	clear(h)
	h[stagev1.HeaderDecline] = []string{"1"}
	if resp == nil {
		h[hiddenDecline] = []string{"1"}
	}
	h["Content-Length"] = []string{"0"}
	if resp != nil {
		resp.addNotices(h)
	}
	w.WriteHeader(http.StatusNotFound)
}
