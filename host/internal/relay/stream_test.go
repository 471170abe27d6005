package relay

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/catena-dev/catena/sdk/stagev1/header"
)

// TestStream shows that each event of a stream reaches the client before the stage
// has sent the next, and the head before the first.
func TestStream(t *testing.T) {
	t.Parallel()
	next, ended := make(chan struct{}), make(chan struct{})
	stage := serveStage(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(ended)
		flush := w.(http.Flusher).Flush
		w.Header().Set("X-Head", "1")
		flush()
		for i := 0; ; i++ {
			select {
			case <-next:
			case <-r.Context().Done():
				return
			}
			fmt.Fprintf(w, "event %d\n", i)
			flush()
		}
	}))
	for name, srv := range map[string]*httptest.Server{"HTTP/1.1": serve(t, newChain(t, Config{}, stage)), "HTTP/2": serveHTTP2(t, newChain(t, Config{}, stage))} {
		ended = make(chan struct{})
		resp, err := srv.Client().Get(srv.URL)
		if err != nil {
			t.Fatal(err)
		}
		if resp.Proto != name && resp.Proto != name+".0" || resp.Header.Get("X-Head") != "1" {
			t.Errorf("%s %v", resp.Proto, resp.Header)
		}
		r := bufio.NewReader(resp.Body)
		for i := range 100 {
			next <- struct{}{}
			if line, err := r.ReadString('\n'); line != fmt.Sprintf("event %d\n", i) {
				t.Fatalf("%s: %q, %v", name, line, err)
			}
		}
		resp.Body.Close()
		within(t, "the stage to see that the client has left", ended)
	}
}

// TestSlowResponse shows that a response of known length reaches the client as it comes,
// too, however slow that is.
func TestSlowResponse(t *testing.T) {
	t.Parallel()
	next := make(chan struct{})
	stage := serveStage(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "2")
		for _, part := range []string{"", "a", "b"} {
			io.WriteString(w, part)
			w.(http.Flusher).Flush()
			<-next
		}
	}))
	for _, srv := range []*httptest.Server{serve(t, newChain(t, Config{}, stage)), serveHTTP2(t, newChain(t, Config{}, stage))} {
		resp, err := srv.Client().Get(srv.URL)
		if err != nil {
			t.Fatal(err)
		}
		next <- struct{}{}
		for _, want := range []string{"a", "b"} {
			p := make([]byte, 1)
			if _, err := io.ReadFull(resp.Body, p); string(p) != want || err != nil {
				t.Fatalf("%q, %v", p, err)
			}
			next <- struct{}{}
		}
		resp.Body.Close()
	}
}

func serveHTTP2(t testing.TB, h http.Handler) *httptest.Server {
	srv := httptest.NewUnstartedServer(h)
	srv.EnableHTTP2 = true
	srv.StartTLS()
	t.Cleanup(srv.Close)
	return srv
}

// TestFullDuplex has a client and a stage talk in turns within one request, which
// HTTP/2 clients can do.
func TestFullDuplex(t *testing.T) {
	t.Parallel()
	stage := serveStage(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		if r.Header[header.Duplex] != nil {
			rc.EnableFullDuplex()
		}
		rc.Flush()
		for p := make([]byte, 4); ; {
			if _, err := io.ReadFull(r.Body, p); err != nil {
				return
			}
			w.Write(p)
			rc.Flush()
		}
	}))
	srv := serveHTTP2(t, newChain(t, Config{}, stage))
	out, in := io.Pipe()
	resp, err := srv.Client().Post(srv.URL, "", out)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	for range 10 {
		io.WriteString(in, "ping")
		if _, err := io.ReadFull(resp.Body, make([]byte, 4)); err != nil {
			t.Fatal(err)
		}
	}
	in.Close()
	if rest, err := io.ReadAll(resp.Body); len(rest) > 0 || err != nil {
		t.Errorf("%q, %v", rest, err)
	}
}

// TestHTTP10 shows that clients of HTTP/1.0 get responses that they understand.
func TestHTTP10(t *testing.T) {
	t.Parallel()
	stage := scriptStage(t, func(_ int, c *net.UnixConn, r *bufio.Reader) {
		http.ReadRequest(r)
		io.WriteString(c, "HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: T\r\n\r\n3\r\nabc\r\n0\r\nT: 1\r\n\r\n")
	})
	srv := serve(t, newChain(t, Config{}, stage))
	c, err := net.Dial("tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	io.WriteString(c, "GET / HTTP/1.0\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n")
	response, err := io.ReadAll(c)
	if s := string(response); err != nil || !strings.HasPrefix(s, "HTTP/1.0 200 OK\r\n") || !strings.HasSuffix(s, "\r\n\r\nabc") || strings.Contains(s, "chunked") {
		t.Errorf("%q, %v", response, err)
	}
}

// The end of a request reaches the stage while its response waits for a client that does not read.
func TestEndWhileTheClientDoesNotRead(t *testing.T) {
	t.Parallel()
	ended := make(chan struct{})
	stage := serveStage(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(ended)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	stuck, release := make(chan struct{}), make(chan struct{})
	h, cancel := cancellable(newChain(t, Config{}, stage))
	srv := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(stuckWriter{w, sync.OnceFunc(func() {
			close(stuck)
			<-release
		})}, r)
	}))
	go func() {
		if resp, err := srv.Client().Get(srv.URL); err == nil {
			_ = resp.Body.Close()
		}
	}()
	within(t, "the response to wait for the client", stuck)
	cancel()
	within(t, "the stage to see the end", ended)
	close(release)
}

// stuckWriter is that of a client that does not read.
type stuckWriter struct {
	http.ResponseWriter
	flush func()
}

func (w stuckWriter) Flush() { w.flush() }
