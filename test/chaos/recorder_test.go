package chaos

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"

	"github.com/catena-dev/catena/test/internal/kubelet"
)

// recorder records every single request of the clients, including the silent retries of
// client-go.
type recorder struct {
	next    http.RoundTripper
	clients *clients
}

// RoundTrip implements http.RoundTripper.
func (r *recorder) RoundTrip(req *http.Request) (*http.Response, error) {
	from := time.Now()
	resp, err := r.next.RoundTrip(req)
	what := req.Method + " " + req.URL.Path
	if err != nil {
		r.clients.recordError(req.Context(), from, what, safe(req), err)
		return resp, err
	}
	switch code := resp.StatusCode; {
	case code == http.StatusUnauthorized, code == http.StatusForbidden, code == http.StatusNotFound:
		r.clients.record(failure{request{from, time.Now()}, what, true, false, fmt.Errorf("status %d", code)})
	case req.URL.Path == "/readyz":
	case r.clients.fleet && resp.Header.Get("Retry-After") != "": // it was not executed, and the client tries again
	case code >= 500, code == http.StatusTooManyRequests:
		begin, _ := io.ReadAll(io.LimitReader(resp.Body, 1000))
		resp.Body = readCloser{io.MultiReader(bytes.NewReader(begin), resp.Body), resp.Body}
		// A core that has been killed responds so while it fills its caches, as kube-apiserver does at its start.
		fills := code == http.StatusTooManyRequests && resp.Header.Get("Retry-After") != ""
		r.clients.record(failure{request{from, time.Now()}, req.Method + " " + req.URL.String(), false, safe(req) && !fills, fmt.Errorf("status %d: %s", code, begin)})
	}
	resp.Body = &body{ReadCloser: resp.Body, broken: func(err error) {
		if req.Context().Err() == nil && strings.HasPrefix(req.URL.Path, "/apis/"+wardle) && req.URL.Query().Get("watch") != "" {
			r.clients.broke(request{from, time.Now()}) // the server did not end it: the process in between did, which was replaced
			return
		}
		r.clients.recordError(req.Context(), from, what, false, err)
	}}
	return resp, nil
}

// safe reports whether a request changes nothing.
func safe(req *http.Request) bool {
	return req.Method == http.MethodGet || req.Method == http.MethodHead
}

// WrappedRoundTripper lets client-go find the transport that can cancel a request.
func (r *recorder) WrappedRoundTripper() http.RoundTripper { return r.next }

type readCloser struct {
	io.Reader
	io.Closer
}

// body records a response that breaks off before the client closes it.
type body struct {
	io.ReadCloser
	broken func(error)
	closed atomic.Bool
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF && !b.closed.Load() {
		b.broken(err)
	}
	return n, err
}

func (b *body) Close() error {
	b.closed.Store(true)
	return b.ReadCloser.Close()
}

// recordError records an error that the client has not caused.
func (c *clients) recordError(ctx context.Context, from time.Time, what string, safe bool, err error) {
	if ctx.Err() == nil {
		c.record(failure{request{from, time.Now()}, what, false, safe, err})
	}
}

func (c *clients) record(f failure) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failed = append(c.failed, f)
}

// watchEnded records a watch that the server has ended.
func (c *clients) watchEnded(f failure) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ends = append(c.ends, f)
}

func (c *clients) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failed, c.breaks, c.ends = nil, nil, nil
}

// forger sends headers that claim another identity.
type forger struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (f forger) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.Header.Set("X-Remote-User", forged)
	req.Header.Set("X-Remote-Group", "system:masters")
	req.Header.Set("X-Catena-User", `{"name":"`+forged+`","groups":["system:masters"]}`)
	return f.next.RoundTrip(req)
}

// WrappedRoundTripper lets client-go find the transport that can cancel a request.
func (f forger) WrappedRoundTripper() http.RoundTripper { return f.next }

// session keeps an exec stream open, and opens another when one has broken.
func (c *clients) session(ctx context.Context, config *rest.Config) {
	for ctx.Err() == nil {
		from := time.Now()
		s, err := kubelet.OpenSession(config, namespace, "pod")
		if err != nil {
			c.record(failure{request{from, time.Now()}, "exec", true, false, err})
			return
		}
		said := 0
		for ; err == nil && ctx.Err() == nil; said++ {
			err = s.Echo(fmt.Sprint("line ", said, "\n"), 30*time.Second)
			time.Sleep(2 * pace)
		}
		s.Close()
		c.sessionEnded(ctx, request{from, time.Now()}, said > 1, err)
	}
}

// broke records the time of a stream through the server that has broken.
func (c *clients) broke(r request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.breaks = append(c.breaks, r)
}

func (c *clients) sessionEnded(ctx context.Context, r request, opened bool, err error) {
	switch {
	case ctx.Err() != nil:
	case opened:
		c.broke(r)
	default:
		c.record(failure{r, "exec", false, false, err})
		time.Sleep(pace)
	}
}
