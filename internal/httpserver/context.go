package httpserver

import (
	"context"
	"net/http"
	"sync"
	"time"
)

// requestContext is the context of a request. It ends when the handler has returned, when the host has closed its end
// of the connection, and with the context of the server. The channel that says so is made when it is first waited for,
// which most requests do not.
type requestContext struct {
	server *Server
	conn   *conn

	mu     sync.Mutex
	ended  bool
	waited context.Context // nil until it is waited for
	cancel context.CancelFunc
}

// wait returns the context that others may wait for.
func (c *requestContext) wait() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waited == nil {
		c.waited, c.cancel = context.WithCancel(c.server.Context)
		if c.ended {
			c.cancel()
		}
	}
	return c.waited
}

// end ends the context.
func (c *requestContext) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	if c.cancel != nil {
		c.cancel()
	}
}

func (c *requestContext) Deadline() (time.Time, bool) { return c.server.Context.Deadline() }

func (c *requestContext) Done() <-chan struct{} { return c.wait().Done() }

func (c *requestContext) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.waited != nil:
		return c.waited.Err()
	case c.ended:
		return context.Canceled
	default:
		return c.server.Context.Err()
	}
}

// Value has what others wait for respond to package context, which asks for its own by a key.
func (c *requestContext) Value(key any) any {
	switch key {
	case http.ServerContextKey:
		return &c.server.standard
	case http.LocalAddrContextKey:
		return c.conn.socket.LocalAddr()
	}
	c.mu.Lock()
	waited := c.waited
	c.mu.Unlock()
	if waited != nil {
		return waited.Value(key)
	}
	return c.server.Context.Value(key)
}
