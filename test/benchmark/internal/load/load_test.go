package load

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// Sixteen requests in flight of four clients need four connections of HTTP/2, and no more.
func TestConnections(t *testing.T) {
	t.Parallel()
	var connections, inFlight, most atomic.Int32
	full := make(chan struct{})
	var once sync.Once
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/readyz" {
			return
		}
		if r.ProtoMajor != 2 {
			t.Errorf("request over %s", r.Proto)
		}
		n := inFlight.Add(1)
		defer inFlight.Add(-1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		if n == 16 {
			once.Do(func() { close(full) })
		}
		select {
		case <-full:
		case <-time.After(30 * time.Second):
			t.Error("there are never 16 requests in flight")
		}
	}))
	server.EnableHTTP2 = true
	server.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		if s == http.StateNew {
			connections.Add(1)
		}
	}
	server.StartTLS()
	defer server.Close()

	config := &rest.Config{Host: server.URL, QPS: -1, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
	clients, err := Connect(t.Context(), config, 4)
	if err != nil {
		t.Fatal(err)
	}
	defer Close(clients)
	r, err := Run(t.Context(), clients, 16, 200, func(ctx context.Context, c *Client) error {
		return c.JSON.Discovery().RESTClient().Get().AbsPath("/api").Do(ctx).Error()
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Latencies) != 200 || most.Load() != 16 || connections.Load() != 4 {
		t.Errorf("%d requests, at most %d in flight, over %d connections", len(r.Latencies), most.Load(), connections.Load())
	}
}

func TestRunEndsWithTheFirstError(t *testing.T) {
	t.Parallel()
	var n atomic.Int32
	_, err := Run(t.Context(), []*Client{nil}, 3, 1000, func(ctx context.Context, _ *Client) error {
		if n.Add(1) == 10 {
			return io.ErrUnexpectedEOF
		}
		if n.Load() > 10 {
			<-ctx.Done()
			return ctx.Err()
		}
		return nil
	})
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("error %v", err)
	}
}

func TestPercentile(t *testing.T) {
	t.Parallel()
	var d []time.Duration
	for i := range 200 {
		d = append(d, time.Duration(i+1))
	}
	for p, want := range map[int]time.Duration{0: 1, 50: 101, 99: 199, 100: 200} {
		if got := Percentile(d, p); got != want {
			t.Errorf("percentile %d is %d, want %d", p, got, want)
		}
	}
	if got := Percentile(nil, 50); got != 0 {
		t.Errorf("percentile of nothing is %d", got)
	}
}
