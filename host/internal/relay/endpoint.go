package relay

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"
)

// Bounds of the pool of idle connections.
const (
	maxIdle     = 256
	maxIdleTime = 60 * time.Second
)

// dialPause is the pause before another attempt if the backlog of the stage's
// socket is full.
const dialPause = 5 * time.Millisecond

var errClosed = errors.New("endpoint closed")

// Endpoint is the data socket of a stage, with the connections to it. It can be
// used by any number of goroutines.
type Endpoint struct {
	stage string
	addr  net.UnixAddr
	// refusal is Stage.Refusal; set it before the first request.
	refusal string

	mu       sync.Mutex
	idle     []*conn // the longest unused first
	inFlight int
	closed   bool
	hold     hold
	// empty is closed when the endpoint is closed and has no exchange left.
	empty chan struct{}
}

// NewEndpoint returns an endpoint for the socket of a stage. It connects when
// there is a request. The caller has to Close it.
func NewEndpoint(stage, socket string) *Endpoint { return newEndpoint(stage, socket, Limits{}) }

func newEndpoint(stage, socket string, limits Limits) *Endpoint {
	return &Endpoint{
		hold:  hold{limits: limits.withDefaults()},
		stage: stage,
		addr:  net.UnixAddr{Name: socket, Net: "unix"},
		empty: make(chan struct{}),
	}
}

// Stage returns the name of the stage.
func (e *Endpoint) Stage() string { return e.stage }

// Socket returns the path of the socket.
func (e *Endpoint) Socket() string { return e.addr.Name }

// InFlight returns how many requests the stage is working on.
func (e *Endpoint) InFlight() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.inFlight
}

// Close refuses further requests. Those in flight go on; Wait waits for them.
// Take the endpoint out of the chain first: a chain sends a request that meets a
// closed endpoint to the endpoint that has replaced it, if there is one.
func (e *Endpoint) Close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return
	}
	e.closed = true
	e.hold.release()
	for _, c := range e.idle {
		c.release()
	}
	e.idle = nil
	if e.inFlight == 0 {
		close(e.empty)
	}
}

// Wait returns when a closed endpoint has no request left, or with ctx's error.
func (e *Endpoint) Wait(ctx context.Context) error {
	select {
	case <-e.empty:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stage %q: %d requests in flight: %w", e.stage, e.InFlight(), context.Cause(ctx))
	}
}

// get begins an exchange: it returns a connection, an idle one unless redial is
// set. Each get that returns no error is followed by one put. Size is that of the
// request, if it has to wait.
func (e *Endpoint) get(ctx context.Context, redial bool, size int) (*conn, error) {
	for {
		c, err := e.begin(redial)
		if err == errHeld {
			if err = e.awaitResume(ctx, size); err == nil {
				continue
			}
		}
		if err != nil {
			return nil, err
		}
		if c == nil {
			break
		}
		if c.fresh() {
			return c, nil
		}
		e.put(c, false)
	}
	c, err := e.dial(ctx, size)
	if err != nil {
		e.put(nil, false)
		return nil, err
	}
	return c, nil
}

// begin counts an exchange and takes the connection that was used last.
func (e *Endpoint) begin(redial bool) (*conn, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, errClosed
	}
	if e.hold.gate != nil {
		return nil, errHeld
	}
	e.inFlight++
	n := len(e.idle)
	if redial || n == 0 {
		return nil, nil
	}
	c := e.idle[n-1]
	e.idle[n-1] = nil
	e.idle = e.idle[:n-1]
	return c, nil
}

// put ends an exchange. The connection is kept for another if keep is set, and
// closed otherwise.
func (e *Endpoint) put(c *conn, keep bool) {
	var old *conn
	e.mu.Lock()
	e.inFlight--
	if keep && !e.closed {
		now := time.Now()
		if n := len(e.idle); n > 0 && (n == maxIdle || now.Sub(e.idle[0].idleSince) > maxIdleTime) {
			old = e.idle[0]
			e.idle = append(e.idle[:0], e.idle[1:]...)
		}
		c.idleSince = now
		e.idle = append(e.idle, c)
		c = nil
	}
	if e.closed && e.inFlight == 0 {
		close(e.empty)
	}
	e.mu.Unlock()
	for _, c := range []*conn{c, old} {
		if c != nil {
			c.release()
		}
	}
}

func (e *Endpoint) dial(ctx context.Context, size int) (*conn, error) {
	var d net.Dialer
	for waits := false; ; {
		c, err := d.DialContext(ctx, "unix", e.addr.Name)
		if err == nil {
			return newConn(c.(*net.UnixConn))
		}
		if !errors.Is(err, syscall.EAGAIN) {
			return nil, err
		}
		if !waits {
			if _, err := e.enter(size); err != nil {
				return nil, fmt.Errorf("the backlog of the stage's socket is full, and too many requests wait for it already")
			}
			waits = true
			defer e.leave(size)
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%w (the backlog of the stage's socket is full)", context.Cause(ctx))
		case <-time.After(dialPause):
		}
	}
}
