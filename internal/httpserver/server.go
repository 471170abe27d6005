package httpserver

import (
	"context"
	"errors"
	"log"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Server serves requests. Its fields are not changed once Serve has been called.
type Server struct {
	Handler http.Handler
	// Ended is called once for each request that Handler was called with, when that has returned and the response has
	// been written, or cannot be.
	Ended func()
	// MaxHead is the longest head of a request, in bytes.
	MaxHead int
	// Context is what the contexts of requests are derived from.
	Context context.Context
	// ErrorLog takes what handlers do wrong, and why connections could not be accepted.
	ErrorLog *log.Logger

	hangups hangups
	// standard is what handlers find in the context: httputil.ReverseProxy knows by it that a panic aborts the response.
	standard http.Server

	mu       sync.Mutex
	listener net.Listener
	conns    map[*conn]struct{}
	closed   bool
	// ending is set when no other request is to begin. Then gone is closed with the last connection.
	ending atomic.Bool
	gone   chan struct{}
}

// retryAccept is the longest time between two attempts to accept a connection, when the process has too many files open.
const retryAccept = time.Second

// Serve accepts connections and serves their requests until the server is closed, when it returns http.ErrServerClosed, or the listener
// fails. It closes the listener.
func (s *Server) Serve(listener net.Listener) error {
	defer func() { _ = listener.Close() }()
	if !s.listen(listener) {
		return http.ErrServerClosed
	}
	var pause time.Duration
	for {
		nc, err := listener.Accept()
		switch {
		case err == nil:
			pause = 0
			if c := s.open(nc); c != nil {
				go c.serve()
			}
		case s.isClosed():
			return http.ErrServerClosed
		case isTemporary(err):
			pause = min(max(2*pause, 5*time.Millisecond), retryAccept)
			s.ErrorLog.Printf("accept a connection: %v; again in %v", err, pause)
			time.Sleep(pause)
		default:
			return err
		}
	}
}

// isTemporary reports whether a connection may be accepted later: the process or the system has too many files open.
func isTemporary(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOBUFS) ||
		errors.Is(err, syscall.ENOMEM) || errors.Is(err, syscall.ECONNABORTED)
}

// listen reports whether the server is still open.
func (s *Server) listen(listener net.Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listener = listener
	return !s.closed
}

func (s *Server) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// open returns the connection that is to be served, nil if it is not.
func (s *Server) open(nc net.Conn) *conn {
	c, err := newConn(s, nc)
	if err != nil {
		s.ErrorLog.Printf("serve a connection: %v", err)
		_ = nc.Close()
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		_ = nc.Close()
		return nil
	}
	if s.conns == nil {
		s.conns = map[*conn]struct{}{}
	}
	s.conns[c] = struct{}{}
	return c
}

// forget is called when a connection has ended or a handler has taken it over.
func (s *Server) forget(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
	if s.gone != nil && len(s.conns) == 0 {
		close(s.gone)
		s.gone = nil
	}
}

// Shutdown closes the listener, the connections that have no request, and the others when their requests have ended. It
// returns when all are closed that no handler has taken over, or with the error of ctx.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	s.ending.Store(true)
	var err error
	if s.listener != nil {
		err = s.listener.Close()
	}
	gone := make(chan struct{})
	if s.gone = gone; len(s.conns) == 0 {
		close(gone)
		s.gone = nil
	}
	for c := range s.conns {
		if c.busy.CompareAndSwap(false, true) { // it gets no request any more
			_ = c.socket.Close()
		}
	}
	s.mu.Unlock()
	select {
	case <-gone:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close closes the listener and all connections that no handler has taken over. It does not wait for handlers.
func (s *Server) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	var err error
	if s.listener != nil {
		err = s.listener.Close()
	}
	for c := range s.conns {
		_ = c.socket.Close()
	}
	s.hangups.close()
	return err
}
