package relay

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"

	"github.com/catena-dev/catena/host/internal/relay/h1"
)

// dialPause is the pause before another attempt if the backlog of the stage's
// socket is full.
const dialPause = 5 * time.Millisecond

var (
	errClosed      = errors.New("endpoint closed")
	errBacklogFull = errors.New("the backlog of the stage's socket is full")
)

// endpoint is the data socket of a stage, with the connections to it. It can be
// used by any number of goroutines.
type endpoint struct {
	stage, socket string
	// refusal is Stage.Refusal; it is set before the first request.
	refusal string
	// limited is Config.Limited, which may be nil, and discards Stage.DiscardsBodies; both are set before the first
	// request.
	limited  func(stage, limit, reason string)
	discards bool
	// dialer, and heads, chunks and user, which may be nil, are set before the first request, too.
	dialer func(ctx context.Context, socket string) (net.Conn, error)
	heads  *h1.Budget
	chunks *h1.Budget
	user   func(*http.Request) string

	mu       sync.Mutex
	idle     h1.Pool
	spent    spent
	inFlight int
	closed   bool
	hold     hold
	// empty is closed when the endpoint is closed and has no request left.
	empty chan struct{}
}

// newEndpoint returns an endpoint for the socket of a stage. It connects when
// there is a request. The caller has to close it.
func newEndpoint(stage, socket string, limits Limits) *endpoint {
	return &endpoint{stage: stage, socket: socket, dialer: dial, hold: hold{limits: limits.withDefaults()}, empty: make(chan struct{})}
}

// dial connects to a Unix socket.
func dial(ctx context.Context, socket string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "unix", socket)
}

// load returns how many requests are with the stage, and how many wait for it.
func (e *endpoint) load() (inFlight, waiting int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.inFlight, e.hold.requests
}

// close refuses further requests. Those in flight go on; wait waits for them.
// The endpoint must be out of the chain: a request that meets a closed endpoint is sent to
// the endpoint that has replaced it, if there is one.
func (e *endpoint) close() {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return
	}
	e.closed = true
	e.hold.release()
	e.idle.Close()
	if e.inFlight == 0 {
		close(e.empty)
	}
	left := e.spent
	e.spent = spent{}
	e.mu.Unlock()
	for _, c := range left.conns {
		e.closeSpent(c)
	}
}

// wait returns when a closed endpoint has no request left, or with ctx's error.
func (e *endpoint) wait(ctx context.Context) error {
	select {
	case <-e.empty:
		return nil
	case <-ctx.Done():
		n, _ := e.load()
		return fmt.Errorf("stage %q: %d requests in flight: %w", e.stage, n, context.Cause(ctx))
	}
}

// get returns a connection for a request, an idle one unless redial is set. Each get that
// returns no error is followed by one put.
func (e *endpoint) get(ctx context.Context, redial bool, w waiter) (*h1.Conn, error) {
	for {
		c, err := e.begin(redial)
		if err == errHeld {
			if err = e.awaitResume(ctx, w); err == nil {
				continue
			}
		}
		if err != nil {
			return nil, err
		}
		if c == nil {
			break
		}
		if c.Silent() {
			return c, nil
		}
		if c.Strayed() {
			e.strayed()
		}
		e.put(c, false)
	}
	c, err := e.dial(ctx, w)
	if err != nil {
		e.put(nil, false)
		return nil, err
	}
	return c, nil
}

// begin counts a request and takes the connection that was used last.
func (e *endpoint) begin(redial bool) (*h1.Conn, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, errClosed
	}
	if e.hold.gate != nil {
		return nil, errHeld
	}
	e.inFlight++
	if redial {
		return nil, nil
	}
	return e.idle.Take(), nil
}

// put ends a request. The connection is kept for another if keep is set, and
// closed otherwise.
func (e *endpoint) put(c *h1.Conn, keep bool) {
	e.mu.Lock()
	e.inFlight--
	if keep && !e.closed {
		c = e.idle.Put(c)
	}
	if e.closed && e.inFlight == 0 {
		close(e.empty)
	}
	e.mu.Unlock()
	if c != nil {
		c.Close()
	}
}

// connect connects to the socket. The error is syscall.EAGAIN if its backlog is full.
func (e *endpoint) connect(ctx context.Context) (*h1.Conn, error) {
	conn, err := e.dialer(ctx, e.socket)
	if err != nil {
		return nil, err
	}
	c, err := h1.NewConn(conn.(*net.UnixConn))
	if err == nil {
		c.Heads = e.heads
	}
	return c, err
}

func (e *endpoint) dial(ctx context.Context, w waiter) (*h1.Conn, error) {
	for waits := false; ; {
		c, err := e.connect(ctx)
		if !errors.Is(err, syscall.EAGAIN) {
			return c, err
		}
		if !waits {
			user := e.userOf(w)
			if _, err := e.enter(user, w.size); err != nil {
				return nil, fmt.Errorf("%w, and %w", errBacklogFull, err)
			}
			waits = true
			defer e.leave(user, w.size)
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%w (%w)", context.Cause(ctx), errBacklogFull)
		case <-time.After(dialPause):
		}
	}
}

// draining are the endpoints that Set has taken out of the chain and that still have
// requests, by their sockets.
type draining struct {
	mu        sync.Mutex
	endpoints map[string]*endpoint
}

func (d *draining) get(socket string) *endpoint {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.endpoints[socket]
}

// add keeps an endpoint until it is empty.
func (d *draining) add(e *endpoint) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.endpoints == nil {
		d.endpoints = map[string]*endpoint{}
	}
	d.endpoints[e.socket] = e
	go func() {
		<-e.empty
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.endpoints[e.socket] == e {
			delete(d.endpoints, e.socket)
		}
	}()
}
