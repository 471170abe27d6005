// Package egress is a proxy through which API servers reach networks that they cannot reach themselves,
// for tests: HTTP CONNECT over TLS and over a Unix socket, and konnectivity's gRPC over a Unix socket. The networks
// are made up: the proxy has a table of where their addresses are on this machine.
package egress

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"

	"google.golang.org/grpc"
	konnectivity "sigs.k8s.io/apiserver-network-proxy/konnectivity-client/proto/client"
)

// Proxy is a proxy. Its methods can be called from any goroutine.
type Proxy struct {
	mu      sync.Mutex
	routes  map[string]string
	dialed  map[string]bool
	closers []func()
}

// Route makes an address of a made-up network lead to one of this machine.
func (p *Proxy) Route(address, here string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.routes == nil {
		p.routes = map[string]string{}
	}
	p.routes[address] = here
}

// Dialed returns the addresses that clients have asked for, sorted.
func (p *Proxy) Dialed() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Sorted(maps.Keys(p.dialed))
}

// Close ends the listeners.
func (p *Proxy) Close() {
	for _, c := range p.closers {
		c()
	}
}

func (p *Proxy) dial(address string) (net.Conn, error) {
	p.mu.Lock()
	here := p.routes[address]
	if p.dialed == nil {
		p.dialed = map[string]bool{}
	}
	p.dialed[address] = true
	p.mu.Unlock()
	if here == "" {
		return nil, fmt.Errorf("no route to %s", address)
	}
	return net.Dial("tcp", here)
}

// ServeConnect serves HTTP CONNECT at a Unix socket.
func (p *Proxy) ServeConnect(socket string) error {
	l, err := net.Listen("unix", socket)
	if err == nil {
		p.serveConnect(l)
	}
	return err
}

// ServeConnectTLS serves HTTP CONNECT on a free port, which it returns.
func (p *Proxy) ServeConnectTLS(config *tls.Config) (string, error) {
	l, err := tls.Listen("tcp", "127.0.0.1:0", config)
	if err != nil {
		return "", err
	}
	p.serveConnect(l)
	return l.Addr().String(), nil
}

func (p *Proxy) serveConnect(l net.Listener) {
	p.closers = append(p.closers, func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go p.connect(conn)
		}
	}()
}

func (p *Proxy) connect(client net.Conn) {
	defer client.Close()
	r, err := http.ReadRequest(bufio.NewReader(client))
	if err != nil || r.Method != http.MethodConnect {
		return
	}
	server, err := p.dial(r.RequestURI) // the header Host is that of the proxy
	if err != nil {
		_, _ = io.WriteString(client, "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")
		return
	}
	defer server.Close()
	if _, err := io.WriteString(client, "HTTP/1.1 200 OK\r\n\r\n"); err != nil {
		return
	}
	ended := make(chan struct{}, 2)
	for _, c := range [][2]net.Conn{{client, server}, {server, client}} {
		go func() {
			_, _ = io.Copy(c[0], c[1])
			ended <- struct{}{}
		}()
	}
	<-ended
}

// ServeGRPC serves konnectivity's protocol at a Unix socket.
func (p *Proxy) ServeGRPC(socket string) error {
	l, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	s := grpc.NewServer()
	konnectivity.RegisterProxyServiceServer(s, tunnels{p})
	p.closers = append(p.closers, s.Stop)
	go func() { _ = s.Serve(l) }()
	return nil
}

type tunnels struct{ proxy *Proxy }

// connectID is that of the one connection that a client opens in a tunnel.
const connectID = 1

// Proxy implements konnectivity.ProxyServiceServer.
func (t tunnels) Proxy(stream konnectivity.ProxyService_ProxyServer) error {
	var server net.Conn
	var mu sync.Mutex
	send := func(p *konnectivity.Packet) error {
		mu.Lock()
		defer mu.Unlock()
		return stream.Send(p)
	}
	defer func() {
		if server != nil {
			_ = server.Close()
		}
	}()
	for {
		packet, err := stream.Recv()
		if err != nil {
			return ignoreEOF(err)
		}
		switch packet.GetType() {
		case konnectivity.PacketType_DIAL_REQ:
			q := packet.GetDialRequest()
			answer := &konnectivity.DialResponse{Random: q.GetRandom(), ConnectID: connectID}
			if server, err = t.proxy.dial(q.GetAddress()); err != nil {
				answer.Error = err.Error()
			}
			dialed := &konnectivity.Packet{Type: konnectivity.PacketType_DIAL_RSP, Payload: &konnectivity.Packet_DialResponse{DialResponse: answer}}
			if err := send(dialed); err != nil {
				return err
			}
			if server != nil {
				go back(server, send)
			}
		case konnectivity.PacketType_DATA:
			if server == nil {
				continue
			}
			if _, err := server.Write(packet.GetData().GetData()); err != nil {
				return err
			}
		case konnectivity.PacketType_CLOSE_REQ, konnectivity.PacketType_DIAL_CLS:
			return send(closed())
		}
	}
}

// back sends what comes from a server, up to its end.
func back(server net.Conn, send func(*konnectivity.Packet) error) {
	buf := make([]byte, 32<<10)
	for {
		n, err := server.Read(buf)
		if n > 0 {
			data := &konnectivity.Data{ConnectID: connectID, Data: slices.Clone(buf[:n])}
			if send(&konnectivity.Packet{Type: konnectivity.PacketType_DATA, Payload: &konnectivity.Packet_Data{Data: data}}) != nil {
				return
			}
		}
		if err != nil {
			_ = send(closed())
			return
		}
	}
}

func closed() *konnectivity.Packet {
	return &konnectivity.Packet{Type: konnectivity.PacketType_CLOSE_RSP, Payload: &konnectivity.Packet_CloseResponse{
		CloseResponse: &konnectivity.CloseResponse{ConnectID: connectID},
	}}
}

func ignoreEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}
