package server

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"path/filepath"
	"sync"

	"github.com/catena-dev/catena/host/internal/bounds"
	"github.com/catena-dev/catena/host/internal/callers"
	"github.com/catena-dev/catena/host/internal/connlimit"
	"github.com/catena-dev/catena/host/internal/guard"
)

// stageSockets are the sockets on which stages call the host, one for each stage: what one does with its own harms no
// other, and who calls is known by it.
type stageSockets struct {
	dir      string
	callers  *callers.Callers
	limits   *limits
	errorLog *log.Logger

	mu      sync.Mutex
	open    map[string]*stageSocket
	handler http.Handler // nil until serve
	closed  bool
}

type stageSocket struct {
	path     string
	server   *http.Server
	listener *connlimit.Listener
	uses     int
}

// use returns the path of a stage's socket, which it opens if it is not, and what is due when the stage has left the chain.
func (s *stageSockets) use(stage string) (path string, done func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return "", nil, errors.New("the server is ending")
	}
	socket := s.open[stage]
	if socket == nil {
		if socket, err = s.openFor(stage); err != nil {
			return "", nil, err
		}
	}
	socket.uses++ // there may be another stage of that name, which is leaving
	return socket.path, sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if socket.uses--; socket.uses == 0 && s.open[stage] == socket {
			delete(s.open, stage)
			_, _ = socket.server.Close(), socket.listener.Close()
		}
	}), nil
}

func (s *stageSockets) openFor(stage string) (*stageSocket, error) {
	path := filepath.Join(s.dir, guard.SecretName(stage, ".host.sock"))
	l, err := guard.ListenFor(path, func(p guard.Peer) error { return s.callers.AdmitTo(stage, p) })
	if err != nil {
		return nil, fmt.Errorf("socket on which stage %q calls the host: %w", stage, err)
	}
	socket := &stageSocket{path: path, listener: connlimit.New(l, connlimit.Options{
		Share: connlimit.Stages, Connections: stageConnections(), Heads: bounds.CallHeads,
		Unbounded: func() bool { return s.callers.Trusted(stage) }, // each process of Kubernetes' stages has a hundred watches
		Refused:   func(bound string) { s.limits.connectionRefused(stage, bound) },
	})}
	socket.server = &http.Server{
		MaxHeaderBytes: bounds.CallHead, ReadHeaderTimeout: bounds.CallHeadTime,
		IdleTimeout: bounds.CallIdle, ErrorLog: s.errorLog,
		ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
			limited, _ := conn.(*connlimit.Conn)
			peer, err := guard.PeerOf(conn)
			own := sync.OnceValue(func() bool { return s.callers.AreOf(stage, peer, err) })
			return context.WithValue(ctx, callKey{}, call{stage: stage, own: own, pid: peer.PID, conn: limited})
		},
	}
	if s.open == nil {
		s.open = map[string]*stageSocket{}
	}
	s.open[stage] = socket
	if s.handler != nil {
		socket.serveCalls(s.handler)
	}
	return socket, nil
}

// serve serves the sockets, also those that are opened later.
func (s *stageSockets) serve(handler http.Handler) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handler = handler
	for _, socket := range s.open {
		socket.serveCalls(handler)
	}
}

func (s *stageSocket) serveCalls(handler http.Handler) {
	s.server.Handler = counted{handler}
	go func() { _ = s.server.Serve(s.listener) }()
}

func (s *stageSockets) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	var errs []error
	for _, socket := range s.open {
		errs = append(errs, socket.server.Close()) // and the listener, if it serves already
		if err := socket.listener.Close(); !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// stageConnections is how many connections a stage may have to the host.
func stageConnections() int {
	return int(min(connlimit.ProcessDescriptors()/bounds.ConnectionShare, bounds.HostConnections))
}

// dialStage connects to a stage, unless the host needs the descriptor for itself.
func dialStage(ctx context.Context, socket string) (net.Conn, error) {
	conn, err := guard.Dial(ctx, socket)
	if err != nil {
		return nil, err
	}
	if err := connlimit.CheckMade(conn, connlimit.Relay); err != nil {
		return nil, errors.Join(fmt.Errorf("connect: %w", err), conn.Close())
	}
	return conn, nil
}

// call is what is known of a request by its connection.
type call struct {
	// stage is that to which the socket belongs. own reports whether one of its processes has connected, which is pid.
	stage string
	own   func() bool
	pid   int
	conn  *connlimit.Conn
}

type callKey struct{}

// callFrom returns that of a request; it is empty if the context has none.
func callFrom(ctx context.Context) call {
	c, _ := ctx.Value(callKey{}).(call)
	return c
}

// counted marks the requests of connections that count.
type counted struct{ http.Handler }

func (h counted) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := callFrom(r.Context())
	held, serve := c.conn.Begin(r)
	if !serve {
		panic(http.ErrAbortHandler) // the connection is being closed
	}
	defer c.conn.End(w, held)
	h.Handler.ServeHTTP(w, r)
}
