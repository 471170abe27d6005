package relay

import (
	"context"
	"net/http"
	"net/textproto"
	"slices"
	"strconv"
	"strings"

	"github.com/catena-dev/catena/host/internal/relay/h1"
	"github.com/catena-dev/catena/sdk/claim"
	"github.com/catena-dev/catena/sdk/stagev1/header"
)

// HostHandler serves the socket on which stages call the host. A request with
// header.Next goes to the rest of the chain, one with
// header.Delegate to the stage named there, any other to the API.
type HostHandler struct {
	Chain *Chain
	// Caller returns the process to which a token belongs.
	Caller func(token string) (caller Caller, ok bool)
	// API is the server as clients see it, with all of its filters.
	API http.Handler
	// As returns the request with the identity of the caller in its context.
	As func(r *http.Request, caller Caller) *http.Request
}

// Caller is a process of a stage that calls the host.
type Caller struct {
	Stage string
	// User and Groups are its identity.
	User   string
	Groups []string
	// Delegates are the downstream stages that the process was configured with. It may
	// call them whatever the chain has become since.
	Delegates []string
	// Staged are the processes, by stage, that join the chain together with this one and do
	// not serve in it yet. Calls of delegates go to them.
	Staged map[string]Staged
}

// Staged is a process that does not serve in the chain yet.
type Staged struct {
	Socket string
	Claims []claim.Claim
	// Added reports that the chain does not have the stage yet: what no stage of the chain
	// serves may be its.
	Added bool
}

func (s Staged) covers(path string) bool {
	return slices.ContainsFunc(s.Claims, func(c claim.Claim) bool { return c.Covers(path) })
}

// ServeHTTP implements http.Handler.
func (h *HostHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	caller, ok := h.Caller(bearer(r))
	if !ok {
		http.Error(w, "the token belongs to no running stage", http.StatusUnauthorized)
		return
	}
	next, delegate := r.Header.Get(header.Next), r.Header.Get(header.Delegate)
	r.Header.Del("Authorization")
	for key := range r.Header {
		if h1.HostOnly(key) {
			delete(r.Header, key)
		}
	}
	switch {
	case next != "":
		h.serveNext(w, r, caller.Stage, next)
	case delegate != "":
		h.serveDelegate(w, r, caller, delegate)
	default:
		r = h.As(r, caller)
		if len(caller.Staged) > 0 {
			r = r.WithContext(context.WithValue(r.Context(), stagedKey{}, caller.Staged))
		}
		h.API.ServeHTTP(w, r)
	}
}

// stagedKey is the key of Caller.Staged in the context of a request.
type stagedKey struct{}

func bearer(r *http.Request) string {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return textproto.TrimString(token)
}

// serveNext relays on behalf of a request that the stage is working on: with that
// request's identity and whatever else its context holds, and no longer than it.
func (h *HostHandler) serveNext(w http.ResponseWriter, r *http.Request, stage, id string) {
	n, err := strconv.ParseUint(id, 10, 64)
	inFlight, ok := h.Chain.inFlight.call(n, stage)
	if err != nil || !ok {
		http.Error(w, "no request "+strconv.Quote(id)+" is in flight to stage "+strconv.Quote(stage), http.StatusConflict)
		return
	}
	original := inFlight.r
	ctx, cancel := context.WithCancelCause(original.Context())
	defer cancel(nil)
	stop := context.AfterFunc(r.Context(), func() { cancel(context.Cause(r.Context())) })
	defer stop()
	h.Chain.relayAfter(w, r.WithContext(ctx), inFlight.snapshot, stage)
	if original.Context().Err() != nil && r.Context().Err() == nil {
		panic(http.ErrAbortHandler) // the caller has not gone, and its response may be short
	}
}

// serveDelegate relays to one stage. A stage that the caller was configured with is never
// "not found": it may be starting, or have been removed.
func (h *HostHandler) serveDelegate(w http.ResponseWriter, r *http.Request, caller Caller, delegate string) {
	if !slices.Contains(caller.Delegates, delegate) {
		http.Error(w, "stage "+strconv.Quote(delegate)+" is not downstream of stage "+strconv.Quote(caller.Stage), http.StatusNotFound)
		return
	}
	if staged := caller.Staged[delegate]; staged.Socket != "" {
		h.Chain.staged(delegate, staged.Socket).ServeHTTP(w, h.As(r, caller))
		return
	}
	h.Chain.Only(delegate).ServeHTTP(w, h.As(r, caller))
}
