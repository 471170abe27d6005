package relay

import (
	"net/http"
	"strconv"
	"strings"
)

// ownRequest is a request that a stage has made in its own name, to the server or to a delegate.
type ownRequest struct {
	stage, delegate, method, target string
	// before is the one that the stage was serving when it made this one; nil if that was a client's, or if the stage did not say.
	before *ownRequest
}

// ownRequestOf describes r, which a stage makes to serve the request with the id cause. An id that the process does not have says nothing.
func (h *HostHandler) ownRequestOf(r *http.Request, caller Caller, cause string) *ownRequest {
	own := &ownRequest{stage: caller.Stage, method: r.Method, target: r.URL.RequestURI()}
	if c := callFrom(r.Context()); c != nil {
		own.delegate = c.delegate
	}
	n, err := strconv.ParseUint(cause, 10, 64)
	if err != nil {
		return own
	}
	if served, ok := h.Chain.inFlight.find(n, caller.Socket); ok {
		if c := callFrom(served.r.Context()); c != nil {
			own.before = c.own
		}
	}
	return own
}

// comesBack reports whether the stage made the same request before, got it itself, and makes it again to serve it.
func (o *ownRequest) comesBack() bool {
	for b := o.before; b != nil; b = b.before {
		if b.stage == o.stage && b.delegate == o.delegate && b.method == o.method && b.target == o.target {
			return true
		}
	}
	return false
}

const (
	maxWay    = 10  // steps
	maxTarget = 200 // bytes of each
)

// way has the last requests that led to this one, the oldest first.
func (o *ownRequest) way() string {
	var steps []string
	for b := o; b != nil && len(steps) < maxWay; b = b.before {
		step := strconv.Quote(b.stage) + " asks for "
		if b.delegate != "" {
			step = strconv.Quote(b.stage) + " asks " + strconv.Quote(b.delegate) + " for "
		}
		steps = append([]string{step + b.method + " " + b.target[:min(len(b.target), maxTarget)]}, steps...)
	}
	return strings.Join(steps, ", ")
}
