package chaos

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
)

// balancer passes TCP connections on to the servers that are ready, in turn, as the balancer in front of a highly
// available control plane does. Connections to a server that does not respond, or has not been ready for downTime, are closed; those to
// one that ends, and does not accept new ones, go on.
type balancer struct {
	listener net.Listener
	backends []*backend
	next     atomic.Uint64
	end      context.CancelFunc
}

type backend struct {
	address string
	ready   atomic.Bool

	mu    sync.Mutex
	conns map[net.Conn]bool
}

const (
	probeInterval = 250 * time.Millisecond
	// probeTimeout is generous: the machine of the test is busy.
	probeTimeout = 3 * time.Second
	// downTime is longer than a server takes that ends in order. One whose etcd is gone says that it is not ready, and its clients would stay.
	downTime = 10 * time.Second
)

// startBalancer starts one for the servers at some URLs. The configuration is that of a client of theirs.
func startBalancer(config *rest.Config, addresses ...string) (*balancer, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	b := &balancer{listener: listener, end: cancel}
	for _, address := range addresses {
		server := &backend{address: address, conns: map[net.Conn]bool{}}
		b.backends = append(b.backends, server)
		c := rest.CopyConfig(config)
		c.Host, c.Timeout = "https://"+address, probeTimeout
		c.Dial = (&net.Dialer{Timeout: probeTimeout}).DialContext
		client, err := rest.HTTPClientFor(c)
		if err != nil {
			return nil, err
		}
		go server.probe(ctx, client, c.Host+"/readyz")
	}
	go b.serve()
	return b, nil
}

// url is the address for clients.
func (b *balancer) url() string { return "https://" + b.listener.Addr().String() }

// ready is nil if all servers are ready.
func (b *balancer) ready() error {
	for _, s := range b.backends {
		if !s.ready.Load() {
			return fmt.Errorf("%s is not ready", s.address)
		}
	}
	return nil
}

func (b *balancer) close() {
	b.end()
	_ = b.listener.Close()
	for _, s := range b.backends {
		s.closeAll()
	}
}

func (b *balancer) serve() {
	for {
		conn, err := b.listener.Accept()
		if err != nil {
			return
		}
		go b.pass(conn)
	}
}

// pass connects a client with the next server that is ready.
func (b *balancer) pass(client net.Conn) {
	defer client.Close()
	for range b.backends {
		server := b.backends[b.next.Add(1)%uint64(len(b.backends))]
		if !server.ready.Load() {
			continue
		}
		conn, err := net.DialTimeout("tcp", server.address, time.Second)
		if err != nil {
			continue
		}
		server.join(client, conn)
		return
	}
}

// join copies in both directions until one side ends.
func (s *backend) join(client, server net.Conn) {
	s.mu.Lock()
	s.conns[client], s.conns[server] = true, true
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.conns, client)
		delete(s.conns, server)
		_ = server.Close()
	}()
	go func() {
		_, _ = io.Copy(server, client)
		_ = server.(*net.TCPConn).CloseWrite()
	}()
	_, _ = io.Copy(client, server)
}

func (s *backend) closeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for conn := range s.conns {
		_ = conn.Close()
	}
}

// probe asks the server whether it is ready, until ctx ends.
func (s *backend) probe(ctx context.Context, client *http.Client, url string) {
	for wasReady := time.Now(); ctx.Err() == nil; {
		resp, err := client.Get(url)
		if err != nil {
			s.ready.Store(false)
			if os.IsTimeout(err) {
				s.closeAll()
			}
			client.CloseIdleConnections()
		} else {
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
			s.ready.Store(resp.StatusCode == http.StatusOK)
		}
		if s.ready.Load() {
			wasReady = time.Now()
		} else if time.Since(wasReady) > downTime {
			s.closeAll()
		}
		time.Sleep(probeInterval)
	}
}
