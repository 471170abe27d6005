package relay

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// TestPool shows that connections are used again, the warmest first, and that those
// that cannot be are not.
func TestPool(t *testing.T) {
	t.Parallel()
	var conns atomic.Int64
	responses := map[string]string{
		"/kept":     "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx",
		"/chunks":   "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n",
		"/none":     "HTTP/1.1 204 No Content\r\n\r\n",
		"/declined": "HTTP/1.1 404 Not Found\r\nX-Catena-Decline: 1\r\nContent-Length: 0\r\n\r\n",
		"/close":    "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: close\r\n\r\nx",
		"/old":      "HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nx",
		"/more":     "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nxHTTP/1.1 200 OK\r\n\r\n",
		"/wordy":    "HTTP/1.1 404 Not Found\r\nX-Catena-Decline: 1\r\nContent-Length: 1\r\n\r\nx",
	}
	stage := scriptStage(t, func(n int, c *net.UnixConn, r *bufio.Reader) {
		conns.Add(1)
		for {
			req, err := http.ReadRequest(r)
			if err != nil {
				return
			}
			io.WriteString(c, responses[req.URL.Path])
		}
	})
	chain := newChain(t, Config{}, stage)
	e := endpointOf(chain)
	for path := range responses {
		before := conns.Load()
		for range 3 {
			chain.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", path, nil))
		}
		kept := map[string]bool{"/kept": true, "/chunks": true, "/none": true, "/declined": true}[path]
		if idle := e.idle.Len(); kept != (idle == 1) {
			t.Errorf("%s: %d idle connections", path, idle)
		}
		if made := conns.Load() - before; kept && made > 1 || !kept && made < 2 {
			t.Errorf("%s: %d connections for three requests", path, made)
		}
	}
}

// TestCloseWaits shows what close and wait promise.
func TestCloseWaits(t *testing.T) {
	t.Parallel()
	stage := startStage(t)
	e := newEndpoint("a", stage.socket, Limits{})
	idle, err := e.get(t.Context(), true, waiter{})
	if err != nil {
		t.Fatal(err)
	}
	busy, err := e.get(t.Context(), true, waiter{})
	if err != nil {
		t.Fatal(err)
	}
	e.put(idle, true)
	e.close()
	e.close()
	if idle.Silent() {
		t.Error("an idle connection is still open")
	}
	if !busy.Silent() {
		t.Error("the connection in use has been closed")
	}
	if _, err := e.get(t.Context(), false, waiter{}); !errors.Is(err, errClosed) {
		t.Errorf("get: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := e.wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("wait with a request in flight: %v", err)
	}
	e.put(busy, true)
	if err := e.wait(t.Context()); err != nil || busy.Silent() {
		t.Errorf("wait: %v; or the last connection is still open", err)
	}
}

// TestFullBacklog has more requests come than the kernel lets wait for a stage that
// accepts none. They wait, and go on when the stage does.
func TestFullBacklog(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "s")
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(syscall.Bind(fd, &syscall.SockaddrUnix{Name: socket}), syscall.Listen(fd, 1)); err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(fd), socket)
	listener, err := net.FileListener(file)
	if err := errors.Join(err, file.Close()); err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	// Accept does not wait for ever for a connection that does not come.
	if err := listener.(*net.UnixListener).SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	e := newEndpoint("a", socket, Limits{})
	defer e.close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	const n, fit = 10, 2 // the kernel's backlog of one is one more
	waiting := func() int { _, n := e.load(); return n }
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			c, err := e.get(ctx, true, waiter{})
			if err != nil {
				t.Error(err)
				return
			}
			e.put(c, false)
		})
	}
	eventually(t, "what does not fit to wait", func() bool { return waiting() == n-fit })
	for range n {
		conn, err := listener.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	all.Wait()

	enough, cancelGet := context.WithCancel(t.Context())
	defer cancelGet()
	for range fit {
		c, err := e.get(enough, true, waiter{})
		if err != nil {
			t.Fatal(err)
		}
		defer e.put(c, false)
	}
	all.Go(func() {
		if c, err := e.get(enough, true, waiter{}); err == nil {
			e.put(c, false)
			t.Error("a connection in spite of a full backlog")
		} else if !errors.Is(err, context.Canceled) {
			t.Errorf("full backlog: %v", err)
		}
	})
	eventually(t, "what does not fit to wait", func() bool { return waiting() == 1 })
	cancelGet()
	all.Wait()
}

// TestAllocations bounds what a small GET costs in the host, beyond what the server
// itself does for it.
func TestAllocations(t *testing.T) {
	stage := startStage(t)
	chain := newChain(t, Config{Propagator: identity{}}, stage.socket)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r := httptest.NewRequestWithContext(ctx, "GET", "/size/1024", nil)
	r.Header.Set("Accept", "application/json")
	r.Header.Set("User-Agent", "test")
	w := &nullWriter{h: http.Header{}}
	n := testing.AllocsPerRun(200, func() {
		clear(w.h)
		chain.ServeHTTP(w, r)
	})
	if t.Logf("%v allocations", n); n > 20 {
		t.Errorf("%v allocations", n)
	}
	if w.n == 0 {
		t.Error("no response")
	}
}

// nullWriter costs nothing.
type nullWriter struct {
	h http.Header
	n int
}

func (w *nullWriter) Header() http.Header         { return w.h }
func (w *nullWriter) WriteHeader(int)             {}
func (w *nullWriter) Write(p []byte) (int, error) { w.n += len(p); return len(p), nil }
