package sdk

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httputil"

	"github.com/hashicorp/go-hclog"

	"github.com/catena-dev/catena/internal/httpserver"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// next passes requests on to the stages downstream.
type next struct{ call http.Handler }

// ServeHTTP declines if the request and the response are untouched, or else calls.
func (n next) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if resp, ok := w.(*httpserver.Response); ok {
		if x := exchangeOf(resp); x != nil && x.untouched(r) {
			x.decline()
			return
		}
	}
	n.call.ServeHTTP(w, r)
}

// call sends a request to the stages downstream, through the host.
type call struct {
	proxy *httputil.ReverseProxy
	token string
	log   hclog.Logger
}

func (c call) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x := exchangeFrom(r.Context())
	if x == nil {
		x = exchangeOf(w)
	}
	if x == nil || x.id == "" {
		c.log.Error("a request that did not come from the host cannot be passed on", "method", r.Method, "path", r.URL.Path)
		Error(w, "the request did not come from the host, so there is no next stage", http.StatusInternalServerError)
		return
	}
	if x.writer.Refused() {
		return // the host has sent it to the next stage already
	}
	c.proxy.ServeHTTP(w, withHostHeader(r, stagev1.HeaderNext, x.id))
}

// toDelegate sends requests to one stage downstream, with this stage's own identity.
type toDelegate struct {
	proxy *httputil.ReverseProxy
	name  string
}

func (d toDelegate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.proxy.ServeHTTP(w, withHostHeader(r, stagev1.HeaderDelegate, d.name))
}

// hostHeader is the header that says where the host is to send a request.
type hostHeader struct{ key, value string }

type hostHeaderKey struct{}

func withHostHeader(r *http.Request, key, value string) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), hostHeaderKey{}, hostHeader{key, value}))
}

// newProxy returns a proxy to the host that supports streams, upgrades, trailers and
// cancellation.
func newProxy(transport http.RoundTripper, token string, log hclog.Logger) *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Transport:      transport,
		Rewrite:        func(r *httputil.ProxyRequest) { rewrite(r, token) },
		ModifyResponse: endWithDrain,
		// It gets responses that break off: the client has gone, or a stage, of which the host tells.
		ErrorLog:     log.StandardLogger(&hclog.StandardLoggerOptions{ForceLevel: hclog.Debug}),
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) { callFailed(w, r, err, log) },
	}
}

// callFailed responds to a request whose call has failed. A body that is larger than the
// stage allows, by http.MaxBytesReader, is the client's fault; other errors are logged.
func callFailed(w http.ResponseWriter, r *http.Request, err error, log hclog.Logger) {
	if large := (*http.MaxBytesError)(nil); errors.As(err, &large) {
		Error(w, fmt.Sprintf("Request entity too large: limit is %d", large.Limit), http.StatusRequestEntityTooLarge)
		return
	}
	if !errors.Is(r.Context().Err(), context.Canceled) {
		log.Warn("request could not be passed on", "method", r.Method, "path", r.URL.Path, "error", err)
	}
	code := http.StatusBadGateway
	if errors.Is(err, context.DeadlineExceeded) {
		code = http.StatusGatewayTimeout
	}
	Error(w, "the request could not be passed on to the next stage", code)
}

// rewrite changes nothing of the request but where it goes.
func rewrite(r *httputil.ProxyRequest, token string) {
	out := r.Out
	out.URL.Scheme, out.URL.Host = "http", hostName
	out.URL.RawQuery = r.In.URL.RawQuery
	out.Trailer = r.In.Trailer // whose values come with the end of the body, and not into a copy
	for _, key := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
		if values, ok := r.In.Header[key]; ok {
			out.Header[key] = values
		}
	}
	dropInternal(out.Header)
	putTrace(r.In.Context(), out.Header)
	if h, ok := r.In.Context().Value(hostHeaderKey{}).(hostHeader); ok {
		out.Header.Set(h.key, h.value)
		if h.key == stagev1.HeaderDelegate {
			putCause(r.In.Context(), out.Header)
		}
	}
	if served := exchangeFrom(r.In.Context()); served != nil && served.writer.Expects() {
		out.Header.Set("Expect", "100-continue") // the next stage may well not want the body
	}
	out.Header.Set("Authorization", "Bearer "+token)
}
