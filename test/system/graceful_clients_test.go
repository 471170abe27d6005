package system

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/catena-dev/catena/test/internal/cluster"
)

// visitor is a client with connections of its own.
type visitor struct {
	server *cluster.Server
	client *http.Client
}

func newVisitor(t *testing.T, s *cluster.Server, http2 bool) *visitor {
	t.Helper()
	tls, err := rest.TLSConfigFor(s.Config(cluster.Admin))
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: tls, ForceAttemptHTTP2: http2}
	t.Cleanup(transport.CloseIdleConnections)
	return &visitor{s, &http.Client{Transport: transport}}
}

// visit is a request and what came of it.
type visit struct {
	begun, ended time.Time
	code         int
	header       http.Header
	err          error
	// dialed: it went over a new connection. sent: the whole request was sent. closes:
	// the server closes the connection (told over HTTP/1.1 only).
	dialed, sent, closes bool
}

func (v *visitor) visit(ctx context.Context, method, path, body string) visit {
	r := visit{begun: time.Now()}
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn:      func(i httptrace.GotConnInfo) { r.dialed = !i.Reused },
		WroteRequest: func(i httptrace.WroteRequestInfo) { r.sent = i.Err == nil },
	})
	resp, err := v.do(ctx, method, path, body)
	if err == nil {
		r.code, r.header, r.closes = resp.StatusCode, resp.Header, resp.Close
		_, err = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
	r.err, r.ended = err, time.Now()
	return r
}

func (v *visitor) do(ctx context.Context, method, path, body string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, v.server.URL+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+cluster.Admin+"-token")
	req.Header.Set("Content-Type", "application/json")
	return v.client.Do(req)
}

// refused reports whether the server has refused the visit as kube-apiserver does when it ends: by
// 429 or, without shutdown-send-retry-after, by 503 on a connection that it is about to
// close, both with Retry-After; or by not taking it: net/http closes connections on which
// it has not begun to serve a request, whatever comes over them at that moment.
func (r visit) refused(retryAfter bool) bool {
	code := http.StatusServiceUnavailable
	if retryAfter {
		code = http.StatusTooManyRequests
	}
	if r.code == code {
		return r.header.Get("Retry-After") != "" && r.err == nil
	}
	closed := errors.Is(r.err, io.EOF) || errors.Is(r.err, syscall.ECONNRESET)
	return errors.Is(r.err, syscall.ECONNREFUSED) || closed && r.code == 0 || r.err != nil && !r.sent
}

// crowd is many visitors that come again and again.
type crowd struct {
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu     sync.Mutex
	visits []visit
}

func newCrowd(t *testing.T) *crowd {
	c := &crowd{}
	c.ctx, c.cancel = context.WithCancel(context.WithoutCancel(t.Context()))
	t.Cleanup(c.leave)
	return c
}

// come sends a visitor about once per second.
func (c *crowd) come(v *visitor, path string) {
	c.wg.Go(func() {
		for c.ctx.Err() == nil {
			r := v.visit(context.WithoutCancel(c.ctx), http.MethodGet, path, "")
			c.mu.Lock()
			c.visits = append(c.visits, r)
			c.mu.Unlock()
			select {
			case <-c.ctx.Done():
			case <-time.After(time.Second):
			}
		}
	})
}

// leave ends the visits. It can be called more than once.
func (c *crowd) leave() {
	c.cancel()
	c.wg.Wait()
}

// count is how many visits satisfy a condition.
func (c *crowd) count(ok func(visit) bool) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, r := range c.visits {
		if ok(r) {
			n++
		}
	}
	return n
}

// watchers of a path, each on a connection of its own.
type watchGroup struct {
	wg   sync.WaitGroup
	mu   sync.Mutex
	ends []watchEnd
}

type watchEnd struct {
	at  time.Time
	err error
}

func startWatchers(t *testing.T, c *cluster.Catena) map[string]*watchGroup {
	t.Helper()
	groups := map[string]*watchGroup{}
	paths := []string{"/api/v1/configmaps", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "/apis/apiregistration.k8s.io/v1/apiservices"}
	for i := range watchers {
		path := paths[i%len(paths)]
		if groups[path] == nil {
			groups[path] = &watchGroup{}
		}
		groups[path].start(t, newVisitor(t, c.Server, i%2 == 0), path)
	}
	return groups
}

func (g *watchGroup) start(t *testing.T, v *visitor, path string) {
	t.Helper()
	resp, err := v.do(context.WithoutCancel(t.Context()), http.MethodGet, path+"?watch=1", "")
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("watch of %s: %v %v", path, resp, err)
	}
	g.wg.Go(func() {
		err := <-drained(resp)
		g.mu.Lock()
		defer g.mu.Unlock()
		g.ends = append(g.ends, watchEnd{time.Now(), err})
	})
}

func (g *watchGroup) endedBefore(moment time.Time) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := 0
	for _, e := range g.ends {
		if e.at.Before(moment) {
			n++
		}
	}
	return n
}

func (g *watchGroup) broken() []error {
	g.mu.Lock()
	defer g.mu.Unlock()
	var errs []error
	for _, e := range g.ends {
		errs = append(errs, e.err)
	}
	return errs
}
