package stagetest

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	"github.com/catena-dev/catena/sdk"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// hostHandler is the host's side of the socket that the stage calls.
type hostHandler struct{ stage *Stage }

// ServeHTTP sends requests to the stages downstream, and what the stage asks for in its own name to whom it belongs.
func (h hostHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "Bearer "+token {
		http.Error(w, "wrong token", http.StatusUnauthorized)
		return
	}
	if r.Header.Get(stagev1.HeaderLead) != "" { // there is no other process that could
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		return
	}
	if r.Header.Get(stagev1.HeaderInitialized) != "" { // there are no seats to give back
		w.WriteHeader(http.StatusNoContent)
		return
	}
	next, delegate := r.Header.Get(stagev1.HeaderNext), r.Header.Get(stagev1.HeaderDelegate)
	for _, key := range []string{"Authorization", stagev1.HeaderNext, stagev1.HeaderDelegate} {
		r.Header.Del(key)
	}
	switch {
	case next != "":
		h.next(w, r, next)
	case delegate != "":
		h.delegate(w, r, delegate)
	default:
		h.own(w, r)
	}
}

type ownKey struct{}

// ownFrom returns the requests that led to one that the stage makes in its own name, and that one; nil if it is a
// client's.
func ownFrom(ctx context.Context) (way []string) {
	way, _ = ctx.Value(ownKey{}).([]string)
	return way
}

// own sends a request of the stage through the chain: it comes back to the stage if that claims it. One that is made to
// serve itself ends as it does at a host.
func (h hostHandler) own(w http.ResponseWriter, r *http.Request) {
	var way []string
	step := r.Method + " " + r.URL.RequestURI()
	if cause := h.stage.inFlight.get(r.Header.Get(stagev1.HeaderCause)); cause != nil {
		way = ownFrom(cause.Context())
	}
	if slices.Contains(way, step) {
		text := fmt.Sprintf("the request comes back to the stage that has made it: stage %q: %s", h.stage.name, step)
		http.Error(w, text, http.StatusLoopDetected)
		return
	}
	way = append(slices.Clone(way), step)
	h.stage.relay.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), ownKey{}, way)))
}

// next ends when the original request does.
func (h hostHandler) next(w http.ResponseWriter, r *http.Request, id string) {
	original := h.stage.inFlight.get(id)
	if original == nil {
		http.Error(w, "no such request is in flight", http.StatusForbidden)
		return
	}
	recordFrom(original).note(func(r *record) { r.called++ })
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(original.Context(), cancel)()
	h.stage.relay.next(original).ServeHTTP(w, r.WithContext(ctx))
}

func (h hostHandler) delegate(w http.ResponseWriter, r *http.Request, name string) {
	i := slices.IndexFunc(h.stage.opts.Delegates, func(d sdk.Delegate) bool { return d.Name == name })
	if i < 0 {
		http.Error(w, "no such stage", http.StatusForbidden)
		return
	}
	r.Header.Set(stagev1.HeaderDelegate, name)
	h.stage.opts.Delegates[i].Handler.ServeHTTP(w, r)
}
