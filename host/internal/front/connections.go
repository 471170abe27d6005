package front

import (
	"crypto/subtle"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/catena-dev/catena/host/internal/bounds"
	"github.com/catena-dev/catena/host/internal/connlimit"
	"github.com/catena-dev/catena/host/internal/relay/h1"
)

const (
	// keepAlivePeriod is how often an idle TCP connection is probed, as in kube-apiserver.
	keepAlivePeriod = 3 * time.Minute
	// idleGrace is how long connections may stay open without a request when the server shuts down
	// and no request is left: for the last bytes of responses, for clients to
	// close them by themselves, and for the first request of those that are new.
	idleGrace = time.Second
	// unknownGrace is how long requests of clients without credentials, such as health checks, may go on when the
	// server shuts down.
	unknownGrace = 2 * time.Second
)

// connections is a listener that can close the connections that came from it, and bounds what they hold.
//
// net/http's own shutdown asks HTTP/2 clients to close their connections, but not
// those whose TLS handshake is under way at that moment. Such a connection, if the
// client then makes no request, would hold up the shutdown for a whole request
// timeout. https://go.dev/issue/39776 is why it does not count as idle.
type connections struct {
	*connlimit.Listener
	bare net.Listener
	// closed is closed with the listener.
	closed    chan struct{}
	closeOnce sync.Once
	// refusing reports whether connections are closed as they come. The listener itself has
	// to stay open: Kubernetes' code ends with an error if it does not close it itself.
	refusing atomic.Bool
}

// trackConnections calls refused, which may be nil, with the bound for which connections are closed.
func trackConnections(l net.Listener, refused func(bound string)) *connections {
	c := &connections{bare: l, closed: make(chan struct{})}
	c.Listener = connlimit.New(l, connlimit.Options{
		Share: connlimit.Clients, Heads: bounds.ClientHeads, Unknown: true,
		Refused: func(bound string) {
			if refused != nil {
				refused(bound)
			}
		},
	})
	return c
}

// connectionRefused counts that connections of clients have come to a bound, and logs that now and then.
func (f *Frontend) connectionRefused(bound string) {
	f.metrics.observeConnection(bound)
	if f.refusals.Due(bound) {
		f.opts.Log.Warn("connections of clients are refused: they have come to a bound", "bound", bound)
	}
}

// Close implements net.Listener. The connections stay open.
func (c *connections) Close() error {
	err := c.Listener.Close()
	c.closeOnce.Do(func() { close(c.closed) })
	return err
}

// Accept implements net.Listener.
func (c *connections) Accept() (net.Conn, error) {
	for {
		conn, err := c.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if c.refusing.Load() {
			_ = conn.Close()
			continue
		}
		if tcp, ok := conn.(*connlimit.Conn).Conn.(*net.TCPConn); ok {
			_ = tcp.SetKeepAlivePeriod(keepAlivePeriod)
		}
		return conn, nil
	}
}

// file returns a duplicate of the socket. Connections wait for the process that has it when the listener is closed.
func (c *connections) file() (*os.File, error) {
	l, ok := c.bare.(*net.TCPListener)
	if !ok {
		return nil, fmt.Errorf("%T is not a TCP socket", c.bare)
	}
	return l.File()
}

// HandOver is for a server that ends so that another one takes its place. It serves the requests that come on its connections until
// these have been told to close, as it does those that take long: there is no other server that clients could be referred to.
func (f *Frontend) HandOver() { f.handingOver.Store(true) }

// ListenerFile returns a duplicate of the socket that clients connect to.
func (f *Frontend) ListenerFile() (*os.File, error) { return f.listener.file() }

// holdUntilReady returns when the server is ready, or responds with 503 if it ends before. Its own requests, and those for its
// health, it does not hold up.
func (f *Frontend) holdUntilReady(loopbackToken string) func(http.ResponseWriter, *http.Request) bool {
	loopback := []byte("Bearer " + loopbackToken)
	return func(w http.ResponseWriter, r *http.Request) bool {
		endpoint, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		if slices.Contains([]string{"healthz", "livez", "readyz"}, endpoint) ||
			subtle.ConstantTimeCompare([]byte(r.Header.Get("Authorization")), loopback) == 1 {
			return true
		}
		select {
		case <-f.health.ready: // also while the server ends
			return true
		default:
		}
		select {
		case <-f.health.ready:
			return true
		case <-f.initiated:
			f.writer.starting(w, r)
			return false
		case <-r.Context().Done():
			return false
		}
	}
}

func (c *connections) refuse() { c.refusing.Store(true) }

func (c *connections) closeAll() {
	for _, conn := range c.Open() {
		_ = conn.Close()
	}
}

// requests counts the requests that a handler, with all filters, is working on.
type requests struct {
	http.Handler
	count atomic.Int64
	// hold returns when a request may be served, and false if it is not to be; nil if all may at once.
	hold func(w http.ResponseWriter, r *http.Request) bool
	// lost is set when no request can be served any more, and writer responds then.
	lost   atomic.Bool
	writer errorWriter
	// connections are those that requests come on.
	connections *connections
}

func (h *requests) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.count.Add(1)
	defer h.count.Add(-1)
	conn := h.connections.From(r.RemoteAddr)
	held, serve := conn.Begin(r)
	if !serve { // there is no room for it, nor for a body of the response that the client may not take
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusTooManyRequests)
		return
	}
	defer conn.End(w, held)
	if h.lost.Load() {
		h.writer.lost(w, r)
		return
	}
	if h.hold != nil && !h.hold(w, r) {
		return
	}
	r, handled := withHandled(r)
	defer handled()
	h.Handler.ServeHTTP(w, h1.WithTrailers(r))
}

// endConnections closes, when the server shuts down, what connections would keep it from its end: from unknownGrace on
// those with requests of unknown clients, which may take none of a response; those without a request when all
// requests, the long running ones too, have ended; and all when the time for that is over.
func (h *requests) endConnections(draining, drained, ended <-chan struct{}, most time.Duration) {
	select {
	case <-draining:
	case <-ended:
		return
	}
	over, unknown, idle := time.After(most), time.NewTicker(unknownGrace), time.NewTicker(idleGrace/10)
	defer unknown.Stop()
	defer idle.Stop()
	var waited []*connlimit.Conn
	var none time.Time // from when on there may be connections without a request only
	for {
		select {
		case <-unknown.C:
			for _, c := range waited {
				if c.UnknownWaits() {
					_ = c.Close()
				}
			}
			waited = h.connections.Open()
		case <-drained:
			drained, none = nil, time.Now().Add(idleGrace)
		case <-idle.C:
			if drained == nil && time.Now().After(none) && h.count.Load() == 0 {
				h.connections.CloseIdle(idleGrace)
			}
		case <-over:
			h.connections.closeAll()
		case <-ended:
			return
		}
	}
}
