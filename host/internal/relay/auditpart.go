package relay

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/semaphore"

	"github.com/catena-dev/catena/host/internal/bounds"
	"github.com/catena-dev/catena/sdk/stagev1/header"
)

// auditParts are the bytes of messages that are in the audit events of requests in flight.
type auditParts struct {
	room *semaphore.Weighted
	some atomic.Int64 // requests with any

	mu   sync.Mutex
	held map[uint64]int64
}

func newAuditParts() *auditParts {
	return &auditParts{room: semaphore.NewWeighted(bounds.AuditParts), held: map[uint64]int64{}}
}

// hold waits for room, which the request has until release.
func (a *auditParts) hold(ctx context.Context, id uint64, size int64) error {
	ctx, cancel := context.WithTimeout(ctx, bounds.AuditWait)
	defer cancel()
	if err := a.room.Acquire(ctx, size); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, ok := a.held[id]; !ok {
		a.some.Add(1)
	}
	a.held[id] += size
	return nil
}

// release gives back what a request has, if it has any.
func (a *auditParts) release(id uint64) {
	if a.some.Load() == 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if size, ok := a.held[id]; ok {
		delete(a.held, id)
		a.some.Add(-1)
		a.room.Release(size)
	}
}

// serveAuditPart takes what a stage adds to the audit event of a request that it serves.
func (h *HostHandler) serveAuditPart(w http.ResponseWriter, r *http.Request, caller Caller, id string) {
	n, err := strconv.ParseUint(id, 10, 64)
	switch {
	case err != nil:
		http.Error(w, strconv.Quote(id)+" is not the id of a request", http.StatusBadRequest)
	case !caller.Trusted:
		http.Error(w, "stage "+strconv.Quote(caller.Stage)+" may add to an audit event in the head of its response", http.StatusForbidden)
	case r.ContentLength < 0 || r.ContentLength > bounds.AuditPart:
		http.Error(w, fmt.Sprintf("a part of an audit event says its length, of %d bytes at most", bounds.AuditPart),
			http.StatusRequestEntityTooLarge)
	default:
		if code, err := h.Chain.addAuditPart(r, caller, n); err != nil {
			http.Error(w, err.Error(), code)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	}
}

// addAuditPart adds the body of r to the audit event of a request.
func (c *Chain) addAuditPart(r *http.Request, caller Caller, id uint64) (code int, err error) {
	if _, ok := c.inFlight.find(id, caller.Socket); !ok { // it does not wait for room, and gives back none of another's
		return http.StatusConflict, fmt.Errorf("this process of stage %q does not have the request %d", caller.Stage, id)
	}
	if err := c.auditParts.hold(r.Context(), id, r.ContentLength); err != nil {
		return http.StatusServiceUnavailable, fmt.Errorf("no room for it: %w", err)
	}
	text := make([]byte, r.ContentLength)
	_, err = io.ReadFull(r.Body, text)
	served, ok := c.inFlight.serve(id, caller.Socket)
	switch {
	case !ok:
		c.auditParts.release(id)
		return http.StatusConflict, fmt.Errorf("this process of stage %q does not serve the request %d", caller.Stage, id)
	case err != nil:
		return http.StatusBadRequest, err
	}
	if p := c.config.Propagator; p != nil {
		p.ResponseHeader(served.r, Sender{Stage: caller.Stage, Serves: true, Kubernetes: served.kubernetes}, header.Audit, string(text))
	}
	return 0, nil
}
