package relay

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
)

// randomBody is n bytes that no two parts of are alike, and their sum.
func randomBody(n int) ([]byte, string) {
	p := make([]byte, n)
	rng := rand.NewChaCha8([32]byte{1})
	rng.Read(p)
	sum := sha256.Sum256(p)
	return p, hex.EncodeToString(sum[:])
}

// TestBodies sends bodies of all sizes in both directions, with and without a length,
// to a stage that may decline and to one that may not.
func TestBodies(t *testing.T) {
	t.Parallel()
	never := serveStage(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { decline(w) }))
	echo := serveStage(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Errorf("stage: %v", err)
		}
		if r.URL.Query().Has("length") {
			w.Header().Set("Content-Length", fmt.Sprint(len(body)))
		}
		w.Write(body)
	}))
	alone := serve(t, newChain(t, Config{}, echo))
	after := serve(t, newChain(t, Config{}, never, echo))
	for _, srv := range []*httptest.Server{alone, after} {
		for _, size := range []int{0, 1, 4095, maxBuffered, maxBuffered + 1, 1 << 20, 5 << 20} {
			sent, _ := randomBody(size)
			for _, path := range []string{"/", "/?length"} {
				for name, body := range map[string]io.Reader{
					"length": bytes.NewReader(sent),
					"chunks": io.MultiReader(bytes.NewReader(sent)),
				} {
					_, got := fetch(t, srv, "PUT", path, body)
					if got != string(sent) {
						t.Errorf("%s of %d bytes as %s: got %d bytes, or others", path, size, name, len(got))
					}
				}
			}
		}
	}
}

// TestBodiesAreNotHeld sends a large body to a stage and back. All ends together
// allocate less than one of them would have to if it kept the body in a buffer that grows: half a MiB, but
// under the race detector about the body's size, because pools forget then.
func TestBodiesAreNotHeld(t *testing.T) {
	const size = 64 << 20
	stage := startStage(t)
	srv := serve(t, newChain(t, Config{}, stage.socket))
	allocated := func() uint64 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.TotalAlloc
	}
	before := allocated()
	resp, err := srv.Client().Post(srv.URL+"/echo", "", io.LimitReader(endless{}, size))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if n, err := io.Copy(io.Discard, resp.Body); n != size || err != nil {
		t.Fatalf("%d bytes came back: %v", n, err)
	}
	if n := allocated() - before; n >= 2*size {
		t.Errorf("%d MiB were allocated for %d MiB", n>>20, size>>20)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// TestBackpressure shows that a client which does not read stops the stage.
func TestBackpressure(t *testing.T) {
	t.Parallel()
	const another = 256 << 20 // bytes, which another client gets meanwhile
	var written atomic.Int64
	ended := make(chan struct{})
	stage := serveStage(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/another" {
			io.Copy(w, io.LimitReader(readerFunc(func(p []byte) (int, error) { return len(p), nil }), another))
			return
		}
		defer close(ended)
		for p := make([]byte, 64<<10); ; {
			n, err := w.Write(p)
			if written.Add(int64(n)); err != nil {
				return
			}
		}
	}))
	srv := serve(t, newChain(t, Config{}, stage))
	c, err := net.Dial("tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.(*net.TCPConn).SetReadBuffer(64 << 10)
	io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	eventually(t, "the response to begin", func() bool { return written.Load() > 0 })
	resp, err := srv.Client().Get(srv.URL + "/another")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if n, err := io.Copy(io.Discard, resp.Body); n != another || err != nil {
		t.Fatalf("another client has got %d bytes: %v", n, err)
	}
	if n := written.Load(); n > 64<<20 {
		t.Errorf("%d MiB were taken from the stage for no client", n>>20)
	}
	c.Close()
	within(t, "the stage to see that the client is gone", ended)
}

// TestEarlyResponse has a stage respond to a large upload that it does not read. The client
// gets the response although it has not finished sending.
func TestEarlyResponse(t *testing.T) {
	t.Parallel()
	early := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/some" {
			io.ReadFull(r.Body, make([]byte, 100<<10))
		}
		http.Error(w, "too much", http.StatusRequestEntityTooLarge)
	})
	never := serveStage(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { decline(w) }))
	alone := serve(t, newChain(t, Config{}, serveStage(t, early)))
	after := serve(t, newChain(t, Config{}, never, serveStage(t, early), never))
	for _, srv := range []*httptest.Server{alone, after} {
		for _, framing := range []string{"Content-Length: 1000000000", "Transfer-Encoding: chunked"} {
			for _, path := range []string{"/none", "/some"} {
				c, err := net.Dial("tcp", srv.Listener.Addr().String())
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: h\r\n%s\r\n\r\n", path, framing)
				// A part follows, of a chunk or of all; the rest never comes. The stage's
				// server takes some of it, whether or not the handler reads it.
				go fmt.Fprintf(c, "1000000\r\n%s", strings.Repeat("x", 1<<20))
				resp, err := http.ReadResponse(bufio.NewReader(c), nil)
				if err != nil {
					t.Fatal(err)
				}
				body, err := io.ReadAll(resp.Body)
				if resp.StatusCode != http.StatusRequestEntityTooLarge || string(body) != "too much\n" || err != nil {
					t.Errorf("%s, %s: %d %q, %v", path, framing, resp.StatusCode, body, err)
				}
			}
		}
	}
}

// TestExpectContinue shows that a client which waits for "100 Continue" gets the
// stage's: it comes if the stage reads the body, and does not if the stage refuses it.
func TestExpectContinue(t *testing.T) {
	t.Parallel()
	stage := serveStage(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/refuse" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		body, _ := io.ReadAll(r.Body)
		w.Write(body)
	}))
	srv := serve(t, newChain(t, Config{}, stage))
	for path, want := range map[string]string{"/take": "HTTP/1.1 100 Continue", "/refuse": "HTTP/1.1 403 Forbidden"} {
		c, err := net.Dial("tcp", srv.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n", path)
		r := bufio.NewReader(c)
		if line, err := r.ReadString('\n'); strings.TrimSpace(line) != want {
			t.Fatalf("%s: %q, %v", path, line, err)
		}
		if path == "/take" {
			r.ReadString('\n')
			io.WriteString(c, "abc")
			resp, err := http.ReadResponse(r, nil)
			if err != nil {
				t.Fatal(err)
			}
			if body, _ := io.ReadAll(resp.Body); string(body) != "abc" {
				t.Errorf("body %q", body)
			}
		}
	}
}

// TestLateDecline shows that a stage which has taken of a body cannot decline any more:
// the next would get the rest of it.
func TestLateDecline(t *testing.T) {
	t.Parallel()
	late := serveStage(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body.Read(make([]byte, 10))
		decline(w)
	}))
	next := serveStage(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { t.Error("the next stage got it") }))
	large := strings.Repeat("x", 1<<20)
	if resp, body := fetch(t, serve(t, newChain(t, Config{}, late, next)), "POST", "/", strings.NewReader(large)); resp.StatusCode != http.StatusBadGateway {
		t.Errorf("%s %s", resp.Status, body)
	}
	if resp, body := fetch(t, serve(t, newChain(t, Config{}, late)), "POST", "/", strings.NewReader(large)); resp.StatusCode != http.StatusNotFound {
		t.Errorf("without a next stage: %s %s", resp.Status, body)
	}
}

// TestClientLeavesDuringUpload has the client go away in the middle of its body.
func TestClientLeavesDuringUpload(t *testing.T) {
	t.Parallel()
	began, seen := make(chan struct{}), make(chan error, 1)
	stage := serveStage(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(began)
		_, err := io.Copy(io.Discard, r.Body)
		seen <- err
	}))
	srv := serve(t, newChain(t, Config{}, stage))
	ctx, cancel := context.WithCancel(t.Context())
	body := readerFunc(func(p []byte) (int, error) { <-ctx.Done(); return 0, ctx.Err() })
	req, _ := http.NewRequestWithContext(ctx, "POST", srv.URL, io.MultiReader(strings.NewReader(strings.Repeat("x", 1<<20)), body))
	go func() {
		if resp, err := srv.Client().Do(req); err == nil {
			resp.Body.Close()
		}
	}()
	within(t, "the stage to get the request", began)
	cancel()
	if err := within(t, "the stage to see the end", seen); err == nil {
		t.Error("the stage takes a body that broke off for a whole one")
	}
}
