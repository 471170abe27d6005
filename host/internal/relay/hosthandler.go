package relay

import (
	"context"
	"fmt"
	"net/http"
	"net/textproto"
	"slices"
	"strconv"
	"strings"

	"github.com/catena-dev/catena/host/internal/bounds"
	"github.com/catena-dev/catena/host/internal/chain"
	"github.com/catena-dev/catena/host/internal/relay/h1"
	"github.com/catena-dev/catena/sdk/claim"
	"github.com/catena-dev/catena/sdk/stagev1/header"
)

// HostHandler serves the socket on which stages call the host. A request with header.Next goes to the rest of the
// chain, one with header.Delegate to the stage named there, any other to the API; these may say with header.Cause why
// they are made. One with header.Initialized is a message about a watch that the stage is serving, and one with
// header.AuditPart about the audit event of a request. One with header.Lead lasts as long as the process leads.
type HostHandler struct {
	Chain *Chain
	// Caller returns the process to which a token belongs, if that may make the request.
	Caller func(r *http.Request, token string) (caller Caller, ok bool)
	// API is the server as clients see it, with all of its filters.
	API http.Handler
	// As returns the request with the identity of the caller in its context.
	As func(r *http.Request, caller Caller) *http.Request
	// Authorize decides whether the user of a request may make r, which is what the stage
	// has made of it: method, path or query differ. The context of r is that of the request as
	// the client sent it. It returns the request to relay, or responds itself.
	Authorize func(w http.ResponseWriter, r *http.Request, stage string) (authorized *http.Request, ok bool)
	// Again serves a request that a stage hands on after another one that may have written, of the same request, to
	// which the context of r belongs: what it executes has an audit event of its own.
	Again func(w http.ResponseWriter, r *http.Request, stage string, serve http.HandlerFunc)
	// Initialized is called with the context of a watch that has sent its initial events, if
	// it is not nil.
	Initialized func(ctx context.Context)
	// Lead responds to a request for a lead of the stage when it has that, and until it has it no more. It may be nil.
	Lead func(w http.ResponseWriter, r *http.Request, stage, name string)
	// Refuse responds to a request that the stage is not granted to make.
	Refuse func(w http.ResponseWriter, r *http.Request, refusal Refusal)

	calls delegateCalls
}

// Refusal is why a request of a stage is refused.
type Refusal struct {
	Stage string
	// Grant is the key in stages.STAGE.grants that is missing.
	Grant string
	// Reason says what the stage has tried, as the end of "the stage may not".
	Reason string
}

// Caller is a process of a stage that calls the host.
type Caller struct {
	Stage string
	// Socket is that on which the process gets requests: it may speak of those that are in flight there, and not of
	// those of another process of its stage.
	Socket string
	// User and Groups are its identity.
	User   string
	Groups []string
	// MayRewrite and MayDelegate are what it is granted: to hand on requests with another
	// method, path or query, and to call delegates for more than discovery and OpenAPI.
	MayRewrite, MayDelegate bool
	// Trusted reports whether the process is as powerful as the server. Its requests for discovery and OpenAPI of its
	// delegates are not bounded: the aggregator passes on those of clients, who are.
	Trusted bool
	// ReadOnly refuses all requests of the process that could write.
	ReadOnly bool
	// Delegates are the downstream stages that the process was configured with. It may
	// call them whatever the chain has become since.
	Delegates []string
	// Staged are the processes, by stage, that join the chain together with this one and do
	// not serve in it yet. Calls of delegates go to them.
	Staged map[string]Staged
	// Canary reports whether the process is one of those to which a Split sends requests: its own go there too.
	Canary bool
}

// Staged is a process that does not serve in the chain yet.
type Staged struct {
	Socket string
	// Claims are its own: what no stage of the chain serves may be among them, since the stage is new in it or of another version.
	Claims []claim.Claim
	// Kubernetes is that of Stage.
	Kubernetes bool
	// OtherAPI reports whether its stage serves other resources in the chain under the same paths: what is not found
	// there may be served by it.
	OtherAPI bool
}

func (s Staged) covers(path string) bool {
	return slices.ContainsFunc(s.Claims, func(c claim.Claim) bool { return c.Covers(path) })
}

// ServeHTTP implements http.Handler.
func (h *HostHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	caller, ok := h.Caller(r, bearer(r))
	if !ok {
		http.Error(w, "the token belongs to no running stage, or not to this process", http.StatusUnauthorized)
		return
	}
	next, delegate, initialized, auditPart := r.Header.Get(header.Next), r.Header.Get(header.Delegate),
		r.Header.Get(header.Initialized), r.Header.Get(header.AuditPart)
	cause, lead := r.Header.Get(header.Cause), r.Header.Get(header.Lead)
	r.Header.Del("Authorization")
	for key := range r.Header {
		if h1.HostOnly(key) {
			delete(r.Header, key)
		}
	}
	if len(r.RequestURI) > bounds.CallTarget { // it is in audit events
		http.Error(w, fmt.Sprintf("the target of the request is longer than %d bytes", bounds.CallTarget), http.StatusRequestURITooLong)
		return
	}
	if lead != "" {
		h.serveLead(w, r, caller, lead)
		return
	}
	if caller.ReadOnly && initialized == "" && auditPart == "" && mayWrite(r) {
		http.Error(w, "this process of stage "+strconv.Quote(caller.Stage)+" may not write", http.StatusForbidden)
		return
	}
	switch {
	case next != "":
		h.serveNext(w, r, caller, next)
	case delegate != "":
		h.serveDelegate(w, r, caller, delegate, cause)
	case initialized != "":
		h.serveInitialized(w, caller.Socket, initialized)
	case auditPart != "":
		h.serveAuditPart(w, r, caller, auditPart)
	default:
		h.serveOwn(w, withCall(h.As(r, caller), &call{staged: caller.Staged, canary: caller.Canary}), caller, cause)
	}
}

// mayWrite reports whether a request could have an effect: it is no read, no review of an access or a token, and no dry run.
func mayWrite(r *http.Request) bool {
	switch {
	case h1.UpgradeOf(r) != "":
		return true
	case safeMethod(r.Method):
		return false
	case r.Method == http.MethodPost && (strings.HasPrefix(r.URL.Path, "/apis/authentication.k8s.io/") ||
		strings.HasPrefix(r.URL.Path, "/apis/authorization.k8s.io/")):
		return false
	}
	return !slices.Equal(r.URL.Query()["dryRun"], []string{"All"})
}

// serveInitialized takes the message that a watch has sent its initial events. One that has
// ended by now needs it no more.
func (h *HostHandler) serveInitialized(w http.ResponseWriter, socket, id string) {
	n, err := strconv.ParseUint(id, 10, 64)
	if err != nil {
		http.Error(w, strconv.Quote(id)+" is not the id of a request", http.StatusBadRequest)
		return
	}
	if watch, ok := h.Chain.inFlight.find(n, socket); ok && h.Initialized != nil {
		h.Initialized(watch.r.Context())
	}
	w.WriteHeader(http.StatusNoContent)
}

// serveLead has a process lead, unless it is one that only shows what it would respond.
func (h *HostHandler) serveLead(w http.ResponseWriter, r *http.Request, caller Caller, name string) {
	if caller.ReadOnly || h.Lead == nil {
		http.Error(w, "this process does not lead", http.StatusConflict)
		return
	}
	h.Lead(w, r, caller.Stage, name)
}

// call is what the context of a request has that a stage makes.
type call struct {
	staged map[string]Staged
	// delegate is the stage that is called; empty if it is the API.
	delegate string
	// canary is Caller.Canary.
	canary bool
	// caller is the stage; empty if it is the host itself.
	caller string
	// own is the request, if a stage that is not as powerful as the server makes it.
	own *ownRequest
}

type callKey struct{}

// WithStage returns a context whose requests go to one stage, whatever it claims: to the process that serves or, if socket is
// not empty, to the one that has it.
func WithStage(ctx context.Context, stage, socket string) context.Context {
	c := &call{delegate: stage}
	if socket != "" {
		c.staged = map[string]Staged{stage: {Socket: socket}}
	}
	return context.WithValue(ctx, callKey{}, c)
}

func withCall(r *http.Request, c *call) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), callKey{}, c))
}

func callFrom(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	return c
}

func bearer(r *http.Request) string {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return textproto.TrimString(token)
}

// serveNext relays on behalf of a request that the stage is working on: with that
// request's identity and whatever else its context holds, and no longer than it.
func (h *HostHandler) serveNext(w http.ResponseWriter, r *http.Request, caller Caller, id string) {
	stage := caller.Stage
	n, err := strconv.ParseUint(id, 10, 64)
	inFlight, ok := h.Chain.inFlight.call(n, caller.Socket)
	if err != nil || !ok {
		closeUnlessRead(w, r)
		http.Error(w, "no request "+strconv.Quote(id)+" is in flight to this process of stage "+strconv.Quote(stage)+", or it has described in its audit event how it served it", http.StatusConflict)
		return
	}
	original := inFlight.r
	ctx, cancel := context.WithCancelCause(original.Context())
	defer cancel(nil)
	if duplex(original) {
		ctx = context.WithValue(ctx, duplexKey{}, true)
		_ = http.NewResponseController(w).EnableFullDuplex() // the body is not waited for, nor is its end
		closeUnlessRead(w, r)
	}
	socket := r.Context()
	stop := context.AfterFunc(socket, func() { cancel(context.Cause(socket)) })
	defer stop()
	r = h1.WithTrailers(r.WithContext(ctx))
	r.RemoteAddr, r.TLS = original.RemoteAddr, original.TLS
	h.restoreHeaders(r, original)
	if changed := changed(original, r); changed != "" {
		if !caller.MayRewrite {
			h.Refuse(w, r, Refusal{Stage: stage, Grant: "rewrite", Reason: "hand on a request with another " + changed})
			return
		}
		if r, ok = h.Authorize(w, r, stage); !ok {
			return
		}
	}
	var before uint32
	if !safe(r) {
		if before, ok = h.Chain.inFlight.write(n, caller.Socket); !ok {
			http.Error(w, "the request "+strconv.Quote(id)+" has ended", http.StatusConflict)
			return
		}
	}
	serve := func(w http.ResponseWriter, r *http.Request) { h.Chain.relayAfter(w, r, inFlight.snapshot, stage) }
	switch {
	case before == 0:
		serve(w, r)
	case !caller.MayRewrite:
		h.Refuse(w, r, Refusal{Stage: stage, Grant: "rewrite", Reason: "hand on a request that writes more than once"})
	default:
		h.Again(w, r, stage, serve)
	}
	if original.Context().Err() != nil && socket.Err() == nil {
		panic(http.ErrAbortHandler) // the caller has not gone, and its response may be short
	}
}

// closeUnlessRead has the response to a call say that the connection ends, until the body is known to have come to its
// end. The server does not wait for the rest then.
func closeUnlessRead(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength != 0 {
		w.Header().Set("Connection", "close")
	}
}

// restoreHeaders gives a request of a stage those headers of the original that are the host's alone. A stage may name a span of its own, in
// the trace of the original.
func (h *HostHandler) restoreHeaders(r, original *http.Request) {
	propagator := h.Chain.config.Propagator
	if propagator == nil {
		return
	}
	for key := range r.Header {
		canonical := textproto.CanonicalMIMEHeaderKey(strings.ReplaceAll(key, "_", "-")) // as some servers do
		if propagator.HostHeader(canonical) && !(key == traceParent && sameTrace(r.Header, original.Header)) {
			delete(r.Header, key)
		}
	}
	for key, values := range original.Header {
		if _, ok := r.Header[key]; !ok && propagator.HostHeader(key) {
			r.Header[key] = values
		}
	}
}

const traceParent = "Traceparent"

// sameTrace reports whether the spans of both headers are of the same trace, with the same flags: VERSION-TRACE-SPAN-FLAGS.
func sameTrace(a, b http.Header) bool {
	const span, flags, length = len("00-4bf92f3577b34da6a3ce929d0e0e4736-"),
		len("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7"), len("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
	x, y := a[traceParent], b[traceParent]
	return len(x) == 1 && len(y) == 1 && len(x[0]) == length && len(y[0]) == length && x[0][:span] == y[0][:span] &&
		x[0][flags:] == y[0][flags:]
}

// changed returns what of the two requests differs of what is authorized; empty if nothing does.
func changed(original, r *http.Request) string {
	switch {
	case r.Method != original.Method:
		return "method"
	case r.URL.Path != original.URL.Path || r.URL.RawPath != original.URL.RawPath:
		return "path"
	case r.URL.RawQuery != original.URL.RawQuery:
		return "query"
	}
	return ""
}

// serveDelegate relays to one stage. A stage that the caller was configured with is never
// "not found": it may be starting, or have been removed. Discovery and OpenAPI, which are
// open to all users who are authenticated, go straight to the stage; everything else goes through
// the filters, as a request of the caller.
func (h *HostHandler) serveDelegate(w http.ResponseWriter, r *http.Request, caller Caller, delegate, cause string) {
	if !slices.Contains(caller.Delegates, delegate) {
		http.Error(w, "stage "+strconv.Quote(delegate)+" is not downstream of stage "+strconv.Quote(caller.Stage), http.StatusNotFound)
		return
	}
	r = withCall(h.As(r, caller), &call{staged: caller.Staged, delegate: delegate, canary: caller.Canary, caller: caller.Stage})
	switch {
	case (r.Method == http.MethodGet || r.Method == http.MethodHead) && chain.IsDiscovery(r.URL.Path):
		h.serveDiscovery(w, r, caller)
	case caller.MayDelegate:
		h.serveOwn(w, r, caller, cause)
	default:
		h.Refuse(w, r, Refusal{Stage: caller.Stage, Grant: "delegates", Reason: "call delegates for more than discovery and OpenAPI"})
	}
}

// serveDiscovery relays a request for discovery or OpenAPI, which no filter has limited.
func (h *HostHandler) serveDiscovery(w http.ResponseWriter, r *http.Request, caller Caller) {
	if caller.Trusted {
		h.Chain.ServeHTTP(w, r)
		return
	}
	if !h.calls.of(caller.Stage).serve(w, r, h.Chain) {
		h.tooMany(w, caller.Stage, LimitDelegates, "for discovery and OpenAPI of its delegates")
	}
}

// serveOwn has the server serve what a stage asks for in its own name. A stage that asks again and again for what it serves itself comes to
// an end here: at once, if it says which request it serves by that, and else before it takes the seats of users.
func (h *HostHandler) serveOwn(w http.ResponseWriter, r *http.Request, caller Caller, cause string) {
	if caller.Trusted {
		h.API.ServeHTTP(w, r)
		return
	}
	own := h.ownRequestOf(r, caller, cause)
	if own.comesBack() {
		h.limited(caller.Stage, LimitLoop, own.text())
		http.Error(w, "the request comes back to the stage that has made it: stage "+own.text(), http.StatusLoopDetected)
		return
	}
	callFrom(r.Context()).own = own
	if !h.calls.of(caller.Stage).serveOwn(w, r, h.API) {
		h.tooMany(w, caller.Stage, LimitOwn, "in its own name")
	}
}

func (h *HostHandler) tooMany(w http.ResponseWriter, stage, limit, which string) {
	h.limited(stage, limit, "")
	http.Error(w, "stage "+strconv.Quote(stage)+" makes too many requests "+which, http.StatusTooManyRequests)
}

func (h *HostHandler) limited(stage, limit, reason string) {
	if h.Chain.config.Limited != nil {
		h.Chain.config.Limited(stage, limit, reason)
	}
}
