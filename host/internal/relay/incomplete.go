package relay

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/catena-dev/catena/host/internal/chain"
)

// maxIncomplete is how long requests wait at most for a process that does not know yet all that it serves.
const maxIncomplete = 30 * time.Second

// ErrIncomplete is why a request fails that a stage could serve which does not know yet all that it serves.
var ErrIncomplete = errors.New("it does not know all of its paths yet")

var errStaysIncomplete = fmt.Errorf("%w, after %s", ErrIncomplete, maxIncomplete)

func (s *snapshot) setIncomplete(stages []Stage) {
	for i, st := range stages {
		if e := s.targets[i].endpoint; st.Incomplete && e != nil {
			if s.incomplete == nil {
				s.incomplete = map[*endpoint]bool{}
			}
			s.incomplete[e] = true
		}
	}
}

// comesTooEarly reports whether a request has to wait until the stage knows all that it serves.
func (c *Chain) comesTooEarly(r *http.Request, s *snapshot, e *endpoint) bool {
	return c.present(s).incomplete[e] && c.isMerged(r)
}

// isMerged reports whether a request is for what is merged from several stages: by a client, or by the stage that merges. What
// a stage asks for in its own name does not wait: it may be what it needs to know what it serves.
func (c *Chain) isMerged(r *http.Request) bool {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return false
	}
	call := callFrom(r.Context())
	if call != nil && call.delegate == "" || call == nil && c.config.System(r) {
		return false
	}
	return chain.IsDiscovery(r.URL.Path)
}

// awaitComplete returns when the request does not come too early any more. Requests that wait for that count as those
// that wait for the stage.
func (c *Chain) awaitComplete(r *http.Request, s *snapshot, e *endpoint) error {
	if !c.comesTooEarly(r, s, e) {
		return nil
	}
	user := e.userOf(waiter{r: r})
	if _, err := e.enter(user, 0); err != nil {
		return fmt.Errorf("%w, and %w", errHeld, err)
	}
	defer e.leave(user, 0)
	ctx, cancel := context.WithTimeoutCause(r.Context(), maxIncomplete, errStaysIncomplete)
	defer cancel()
	for {
		now := c.present(s)
		if !now.incomplete[e] {
			return nil
		}
		select {
		case <-now.replaced:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
