package stagetest

import (
	"context"
	"net/http"
	"slices"

	"github.com/catena-dev/catena/sdk"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// hostHandler is the host's side of the socket that the stage calls.
type hostHandler struct{ stage *Stage }

// ServeHTTP sends requests to the stages downstream, and others to Options.API.
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
	next, delegate := r.Header.Get(stagev1.HeaderNext), r.Header.Get(stagev1.HeaderDelegate)
	for _, key := range []string{"Authorization", stagev1.HeaderNext, stagev1.HeaderDelegate} {
		r.Header.Del(key)
	}
	switch {
	case next != "":
		h.next(w, r, next)
	case delegate != "":
		h.delegate(w, r, delegate)
	case h.stage.opts.API != nil:
		h.stage.opts.API.ServeHTTP(w, r)
	default:
		http.NotFound(w, r)
	}
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
	h.stage.next().ServeHTTP(w, r.WithContext(ctx))
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
