package front

import (
	"context"
	"net/http"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
)

// LoopbackAddress is the RemoteAddr of requests that come from this machine and not by a port.
const LoopbackAddress = "127.0.0.1:0"

type loopbackUserKey struct{}

// WithLoopbackUser returns a context whose requests, given to Handler, are those
// of the user. It is for callers that the host has authenticated, and the only way
// around the authenticators that the operator has configured.
func WithLoopbackUser(ctx context.Context, name string, groups []string) context.Context {
	return context.WithValue(ctx, loopbackUserKey{}, &user.DefaultInfo{
		Name:   name,
		Groups: append([]string{user.AllAuthenticated}, groups...),
	})
}

// WithServerUser returns a context whose requests, given to Handler, are those of the server itself.
func WithServerUser(ctx context.Context) context.Context {
	return WithLoopbackUser(ctx, user.APIServerUser, []string{user.SystemPrivilegedGroup})
}

// loopbackAuthenticator authenticates requests with the context of WithLoopbackUser, and
// passes all others on.
type loopbackAuthenticator struct {
	next      authenticator.Request
	audiences authenticator.Audiences
	clients   *connections
}

// AuthenticateRequest implements authenticator.Request. It is the first of the host's own code in the goroutine that
// Kubernetes' filter for timeouts makes of each request.
func (a loopbackAuthenticator) AuthenticateRequest(r *http.Request) (*authenticator.Response, bool, error) {
	reserveStack()
	if u, ok := r.Context().Value(loopbackUserKey{}).(user.Info); ok {
		return &authenticator.Response{User: u, Audiences: a.audiences}, true, nil
	}
	if a.next == nil {
		return nil, false, nil
	}
	resp, ok, err := a.next.AuthenticateRequest(r)
	if ok && resp.User.GetName() != user.Anonymous {
		a.clients.From(r.RemoteAddr).Known()
	}
	return resp, ok, err
}

// Ping makes a request to the server by its own port, through TLS and all filters, that no stage takes part in. It takes a
// server that runs.
func (f *Frontend) Ping(ctx context.Context) error {
	return f.loopback.Get().AbsPath("/livez/ping").Do(ctx).Error()
}
