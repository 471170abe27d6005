package httpserver

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"syscall"

	"github.com/catena-dev/catena/internal/http1"
)

// buffers are for what is read at once.
var buffers = http1.NewBuffers(16 << 10)

// conn is a connection of the host. Its goroutine owns it, and lends it to the handler of a request.
type conn struct {
	server *Server
	socket net.Conn
	in     http1.Receiver
	hold   hold
	remote string
	// hijacked is set when a handler has taken the connection over.
	hijacked bool
	// busy is set while there is a request, and when there is to be none any more.
	busy atomic.Bool
	// running is the place of the present request among those that may be asked after.
	running running
}

func newConn(s *Server, socket net.Conn) (*conn, error) {
	sc, ok := socket.(syscall.Conn)
	if !ok {
		return nil, fmt.Errorf("%T has no descriptor", socket)
	}
	c := &conn{server: s, socket: socket}
	if addr := socket.RemoteAddr(); addr != nil {
		c.remote = addr.String()
	}
	return c, c.in.Init(sc, buffers)
}

// serve serves one request after the other.
func (c *conn) serve() {
	defer c.close()
	for c.serveNext() {
	}
}

// serveNext serves the next request, and reports whether there may be another one.
func (c *conn) serveNext() bool {
	x, err := c.next()
	if err != nil {
		var refused *refusal
		if errors.As(err, &refused) {
			_, _ = c.socket.Write(refused.response())
		}
		return false
	}
	if !c.busy.CompareAndSwap(false, true) {
		return false
	}
	returned := false
	defer func() {
		if !returned {
			x.abort(recover())
		}
	}()
	c.server.hangups.begin(c, x)
	c.server.Handler.ServeHTTP(&x.response, x.request)
	c.server.hangups.end(c)
	again := x.finish()
	returned = true
	c.busy.Store(false)
	return again && !c.server.ending.Load()
}

// longHead admits heads that are longer than a buffer.
func longHead() error { return nil }

// next receives the next request.
func (c *conn) next() (*exchange, error) {
	head, err := c.in.Until("\r\n\r\n", c.server.MaxHead, longHead)
	if errors.Is(err, http1.ErrTooLong) {
		return nil, &refusal{http.StatusRequestHeaderFieldsTooLarge, ""}
	}
	if err != nil {
		return nil, err
	}
	return newExchange(c, head)
}

// close ends the connection. It keeps its buffer, from which a goroutine that a handler has left behind may still read a body.
func (c *conn) close() {
	if c.hijacked {
		return
	}
	c.server.forget(c)
	_ = c.socket.Close()
}
