package relay

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/catena-dev/catena/internal/httpserver"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// patience is how long a test waits for what has to happen.
const patience = 30 * time.Second

// eventually waits until the condition holds.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s", patience, what)
		}
	}
}

// within waits for a channel to deliver or to be closed.
func within[T any](t testing.TB, what string, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(patience):
		t.Fatalf("not within %s: %s", patience, what)
		panic("unreachable")
	}
}

// serveStage serves a stage's handler as the SDK does and returns the socket. The test
// ends when the last connection has: a server holds one whose request it has not read to
// the end for half a second.
func serveStage(t testing.TB, h http.Handler) string {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	srv := newStageServer(ctx, h)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	t.Cleanup(func() {
		stop()
		_ = srv.Close()
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := srv.Shutdown(ctx); errors.Is(err, context.DeadlineExceeded) {
			t.Error("the connections of the stage have not ended")
		}
		within(t, "the server of the stage to end", served)
	})
	return socket
}

// newStageServer returns the server that stages have.
func newStageServer(ctx context.Context, h http.Handler) *httpserver.Server {
	return &httpserver.Server{
		Handler: h, Ended: func() {}, MaxHead: 4 << 20, Context: ctx, ErrorLog: log.New(io.Discard, "", 0),
	}
}

// scriptStage calls script for each connection, with the connections numbered from
// 0, and closes it afterwards.
func scriptStage(t testing.TB, script func(n int, c *net.UnixConn, r *bufio.Reader)) string {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for n := 0; ; n++ {
			c, err := l.AcceptUnix()
			if err != nil {
				return
			}
			t.Cleanup(func() { c.Close() })
			all.Go(func() {
				defer c.Close()
				script(n, c, bufio.NewReader(c))
			})
		}
	})
	t.Cleanup(func() { l.Close(); all.Wait() })
	return socket
}

// always sends the same response to every request on every connection with the same bytes.
func always(t testing.TB, response string) string {
	return scriptStage(t, func(_ int, c *net.UnixConn, r *bufio.Reader) {
		for {
			req, err := http.ReadRequest(r)
			if err != nil {
				return
			}
			io.Copy(io.Discard, req.Body)
			if _, err := io.WriteString(c, response); err != nil {
				return
			}
		}
	})
}

// order is a Table in which every stage claims every path.
type order int

func (n order) First(string) int { return n.Next("", -1) }
func (n order) Next(_ string, after int) int {
	if after+1 < int(n) {
		return after + 1
	}
	return -1
}

// observed records the hops that Observe gets.
type observed struct {
	mu  sync.Mutex
	all []string
}

func (o *observed) observe(h Hop) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.all = append(o.all, h.Stage+" "+string(h.Outcome))
}

func (o *observed) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.Join(o.all, ", ")
}

// newChain returns a chain over sockets; the stages are named a, b, c...
func newChain(t testing.TB, config Config, sockets ...string) *Chain {
	t.Helper()
	chain := NewChain(config)
	stages := make([]Stage, len(sockets))
	for i, socket := range sockets {
		stages[i] = Stage{Name: string(rune('a' + i)), Socket: socket}
	}
	chain.Set(Tables{All: order(len(stages))}, stages)
	t.Cleanup(func() {
		old := chain.state.Load().targets
		chain.Set(Tables{All: order(0)}, nil)
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		for _, to := range old {
			if to.endpoint == nil {
				continue
			}
			if err := to.endpoint.wait(ctx); err != nil {
				t.Error(err)
			}
		}
	})
	return chain
}

// endpointOf returns the endpoint of the chain's first stage.
func endpointOf(c *Chain) *endpoint { return c.state.Load().targets[0].endpoint }

// inFlightAt returns how many requests are with the chain's first stage.
func inFlightAt(c *Chain) int { return c.Loads()[0].InFlight }

// serve starts a server for a chain.
func serve(t testing.TB, h http.Handler) *httptest.Server {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return srv
}

func decline(w http.ResponseWriter) {
	w.Header().Set(stagev1.HeaderDecline, "1")
	w.Header().Set("Content-Length", "0")
}

// fetch sends a request and returns the response with its body.
func fetch(t testing.TB, srv *httptest.Server, method, path string, body io.Reader) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequest(method, srv.URL+path, body)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := srv.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(text)
}

// cancellable returns a handler whose requests all end with cancel, whatever the
// client does.
func cancellable(h http.Handler) (http.Handler, context.CancelFunc) {
	all, cancel := context.WithCancel(context.Background())
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, stop := context.WithCancelCause(r.Context())
		defer stop(nil)
		defer context.AfterFunc(all, func() { stop(context.Cause(all)) })()
		h.ServeHTTP(w, r.WithContext(ctx))
	}), cancel
}
