package relay

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/catena-dev/catena/host/internal/bounds"
)

// ownRequest is a request that a stage has made in its own name, to the server or to a delegate, and those that led to it.
type ownRequest struct {
	// way are the last requests, bounds.Causes of them, this one included: each is one that the stage was serving when it
	// made the next. A request of a client, or one that the stage does not name, has none before it.
	way []step
}

// step is what is kept of a request: enough to know it again, and the beginning of its target for people.
type step struct {
	digest [sha256.Size]byte
	text   string
}

const (
	maxTarget = 200 // bytes of a target, or of a method, that are kept
	maxWay    = 10  // requests that are named
)

func newStep(stage, delegate, method, target string) step {
	asks := strconv.Quote(stage) + " asks for "
	if delegate != "" {
		asks = strconv.Quote(stage) + " asks " + strconv.Quote(delegate) + " for "
	}
	return step{
		digest: sha256.Sum256(fmt.Appendf(nil, "%q %q %q %s", stage, delegate, method, target)),
		text:   asks + method[:min(len(method), maxTarget)] + " " + target[:min(len(target), maxTarget)],
	}
}

// ownRequestOf describes r, which a stage makes to serve the request with the id cause. An id that the process does not have says nothing.
func (h *HostHandler) ownRequestOf(r *http.Request, caller Caller, cause string) *ownRequest {
	delegate := ""
	if c := callFrom(r.Context()); c != nil {
		delegate = c.delegate
	}
	own := &ownRequest{way: []step{newStep(caller.Stage, delegate, r.Method, r.URL.RequestURI())}}
	n, err := strconv.ParseUint(cause, 10, 64)
	if err != nil {
		return own
	}
	if served, ok := h.Chain.inFlight.find(n, caller.Socket); ok {
		if c := callFrom(served.r.Context()); c != nil && c.own != nil {
			before := c.own.way
			own.way = slices.Concat(before[max(0, len(before)-bounds.Causes+1):], own.way)
		}
	}
	return own
}

// comesBack reports whether the stage made the same request before, got it itself, and makes it again to serve it.
func (o *ownRequest) comesBack() bool {
	last := len(o.way) - 1
	return slices.ContainsFunc(o.way[:last], func(s step) bool { return s.digest == o.way[last].digest })
}

// text has the last requests that led to this one, the oldest first.
func (o *ownRequest) text() string {
	text := ""
	for _, s := range o.way[max(0, len(o.way)-maxWay):] {
		text += ", " + s.text
	}
	return strings.TrimPrefix(text, ", ")
}
