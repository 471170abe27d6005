package apiserver

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"

	"k8s.io/client-go/rest"
)

// loopbackHost is the name under which clients in a stage know the server. It
// has no port on purpose: a client of the loopback configuration dials
// catena:80, and gets the host's Unix socket. A client that resolves the service
// kubernetes.default.svc to it dials it for TLS, without a port or with another.
const (
	loopbackHost    = "catena"
	loopbackAddress = loopbackHost + ":80"
)

// newLoopback returns the client configuration for a server that listens with
// cleartext HTTP/1.1 on a Unix socket and knows the caller by token.
//
// Kubernetes uses this same configuration for admission webhooks and for
// conversion webhooks that point at kubernetes.default.svc, where it insists on
// TLS. Such connections end at a TLS server inside this process, which trusts
// only this process, and continue to the socket.
func newLoopback(socket, token string) (*rest.Config, error) {
	bridge, err := newTLSBridge(loopbackHost)
	if err != nil {
		return nil, fmt.Errorf("loopback client: %w", err)
	}
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
		if err != nil || address == loopbackAddress {
			return conn, err
		}
		return bridge.open(conn)
	}
	return &rest.Config{
		Host:        "http://" + loopbackHost,
		BearerToken: token,
		Dial:        dial,
		// The environment may have a proxy for other clients, which client-go would have dial reach.
		Proxy: func(*http.Request) (*url.URL, error) { return nil, nil },
		// Used only for connections that ask for TLS.
		TLSClientConfig: rest.TLSClientConfig{CAData: bridge.certPEM, ServerName: loopbackHost},
		// The server limits its clients; a second limit here could deadlock hooks.
		QPS:                -1,
		DisableCompression: true,
		ContentConfig:      rest.ContentConfig{ContentType: "application/vnd.kubernetes.protobuf"},
	}, nil
}

// noListener is a listener that listens to nothing. Kubernetes asks
// SecureServingInfo for the port that clients use; only the host has it.
type noListener struct{ address net.Addr }

func newNoListener(externalURL string) (noListener, error) {
	u, err := url.Parse(externalURL)
	if err != nil {
		return noListener{}, fmt.Errorf("external address of the server: %w", err)
	}
	port := u.Port()
	if port == "" {
		port = "443"
	}
	return noListener{address: externalAddress(net.JoinHostPort(u.Hostname(), port))}, nil
}

func (noListener) Accept() (net.Conn, error) { return nil, net.ErrClosed }
func (noListener) Close() error              { return nil }
func (p noListener) Addr() net.Addr          { return p.address }

// externalAddress is HOST:PORT, where HOST may be a name.
type externalAddress string

func (externalAddress) Network() string  { return "tcp" }
func (a externalAddress) String() string { return string(a) }
