package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"syscall"

	"github.com/catena-dev/catena/host/internal/bounds"
	"github.com/catena-dev/catena/host/internal/connlimit"
	"github.com/catena-dev/catena/host/internal/guard"
)

// listenForStages opens the socket on which stages call the host; serve serves it.
func (r *run) listenForStages(path string, handler http.Handler, routing *routing) (serve func(), err error) {
	l, err := guard.ListenFor(path, r.processes.admitUsers)
	if err != nil {
		return nil, fmt.Errorf("socket for the stages: %w", err)
	}
	limited := connlimit.New(l, connlimit.Options{
		Share: connlimit.Stages, PerGroup: stageConnections(), Heads: bounds.CallHeads, Refused: routing.connectionRefused,
		// Each process of Kubernetes' stages has a hundred watches.
		Trusted: r.processes.trusted,
		Group: func(c net.Conn) (string, error) {
			p, err := guard.PeerOf(c)
			if err != nil {
				return "", nil // the system does not tell
			}
			of, _, err := r.processes.of(p)
			return of.Stage, err
		},
	})
	srv := &http.Server{
		Handler: counted{handler}, MaxHeaderBytes: bounds.CallHead, ReadHeaderTimeout: bounds.CallHeadTime, IdleTimeout: bounds.CallIdle,
		ConnContext: withPeer, ErrorLog: r.logs.serverErrors(),
	}
	r.undo.add(func() error {
		err := srv.Close() // and the listener, if it serves already
		if closed := limited.Close(); !errors.Is(closed, net.ErrClosed) {
			err = errors.Join(err, closed)
		}
		return err
	})
	return func() { go func() { _ = srv.Serve(limited) }() }, nil
}

// stageConnections is how many connections a stage may have to the host.
func stageConnections() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 256
	}
	return int(min(uint64(limit.Cur)/bounds.ConnectionShare, bounds.HostConnections))
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

// counted marks the requests of connections that count.
type counted struct{ http.Handler }

func (h counted) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p := peerFrom(r.Context())
	p.conn.Begin()
	defer p.conn.End()
	h.Handler.ServeHTTP(w, r)
}

type peerKey struct{}

// withPeer returns the context of a connection.
func withPeer(ctx context.Context, conn net.Conn) context.Context {
	who, err := guard.PeerOf(conn)
	limited, _ := conn.(*connlimit.Conn)
	return context.WithValue(ctx, peerKey{}, &peer{pid: who.PID, err: err, conn: limited})
}

// peerFrom returns who has opened the connection of a request; nil if it has no such context.
func peerFrom(ctx context.Context) *peer {
	p, _ := ctx.Value(peerKey{}).(*peer)
	return p
}
