package sdk

import (
	"context"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/catena-dev/catena/sdk/stagev1"
)

// Host is how a stage reaches the host: HTTP/1.1 over a Unix socket, with the header
// "Authorization: Bearer TOKEN". Requests to it pass all filters of the server, as those of
// any client do.
type Host struct {
	// Socket is the path of the Unix socket.
	Socket string
	// Token is the credential of this process. It is void once the process has ended.
	Token string
	// User and Groups are the identity that requests with the token have.
	User   string
	Groups []string
	// ServerVersion is the version of Kubernetes that the host is built from, such as v1.37.0. /version has
	// that of the stage with the built-in resources, which can change while this process runs.
	ServerVersion string
	// ExternalURL is where clients reach the server: https://HOST:PORT.
	ExternalURL string
	// HistoryRevision is a revision of the server's etcd of some minutes ago, or 0: caches that know the changes from
	// there on can serve clients that watched another process of the stage.
	HistoryRevision int64
}

func hostFromWire(h *stagev1.Host) Host {
	return Host{
		Socket: h.GetSocket(), Token: h.GetToken(),
		User: h.GetUser(), Groups: slices.Clone(h.GetGroups()),
		ServerVersion: h.GetServerVersion(), ExternalURL: h.GetExternalUrl(), HistoryRevision: h.GetHistoryRevision(),
	}
}

// hostName is the host's name in URLs. It is never resolved: all connections go to the socket.
const hostName = "catena"

// continueTimeout is how long the host may take to decide whether it wants the body of
// a request that its client holds back. The host always decides.
const continueTimeout = 10 * time.Minute

// transports connect to the host's socket: relay for requests that are passed on, own for those that the stage makes.
type transports struct{ relay, own *http.Transport }

// relayBuffer is the size of the buffers of connections by which responses are passed on. A stage's own connections
// have those of net/http: most are watches, on which nothing comes for most of the time.
const relayBuffer = 32 << 10

func newTransports(socket string) transports {
	return transports{relay: newHostTransport(socket, relayBuffer), own: newHostTransport(socket, 0)}
}

func (t transports) closeIdle() {
	t.relay.CloseIdleConnections()
	t.own.CloseIdleConnections()
}

// newHostTransport returns a transport that connects to the host's socket, with buffers of that size or, if it is 0, of net/http's.
func newHostTransport(socket string, buffer int) *http.Transport {
	return &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", socket)
		},
		DisableCompression:    true,
		MaxIdleConnsPerHost:   64,
		IdleConnTimeout:       time.Minute,
		ExpectContinueTimeout: continueTimeout,
		WriteBufferSize:       buffer,
		ReadBufferSize:        buffer,
	}
}

// authorized sends requests with the stage's own identity.
type authorized struct {
	transport http.RoundTripper
	token     string
}

// RoundTrip sends a copy of r to the host.
func (a authorized) RoundTrip(r *http.Request) (*http.Response, error) {
	trailer := r.Trailer
	r = r.Clone(r.Context())
	r.Trailer = trailer // the caller sets their values when it has sent the body
	r.URL.Scheme, r.URL.Host = "http", hostName
	dropInternal(r.Header)
	putTrace(r.Context(), r.Header)
	putCause(r.Context(), r.Header)
	r.Header.Set("Authorization", "Bearer "+a.token)
	return a.transport.RoundTrip(r)
}

// putCause names the request that ctx is of, if it is that of one, in the headers of a request that is made to serve it.
func putCause(ctx context.Context, h http.Header) {
	if served := exchangeFrom(ctx); served != nil {
		h.Set(stagev1.HeaderCause, served.id)
	}
}

// dropInternal removes the headers of the protocol.
func dropInternal(h http.Header) {
	for key := range h {
		if strings.HasPrefix(key, stagev1.HeaderPrefix) {
			delete(h, key)
		}
	}
}
