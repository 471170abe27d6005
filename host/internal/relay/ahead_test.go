package relay

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// bounded gives each request a deadline, as the filters of an API server do: its body is
// read ahead if it is small.
func bounded(h http.Handler, d time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), d)
		defer cancel()
		h.ServeHTTP(w, r.WithContext(ctx))
	})
}

// sendPart sends the head of a request that announces ten bytes of a body, and one of them.
func sendPart(t *testing.T, srv *httptest.Server, method string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	fmt.Fprintf(c, "%s / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\n0", method)
	return c
}

// TestSlowBodyOfASafeMethod shows that a stage responds to a GET whose body does not come:
// the filters see that at once, though the server holds the response back until it has the
// body. A body that does come goes to the stage that reads it, whether or not another stage
// has declined before.
func TestSlowBodyOfASafeMethod(t *testing.T) {
	t.Parallel()
	stage := serveStage(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Read") == "" {
			fmt.Fprint(w, "unread")
			return
		}
		body, err := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %v", body, err)
	}))
	never := serveStage(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { decline(w) }))
	for name, sockets := range map[string][]string{"alone": {stage}, "after a decline": {never, stage}, "before another": {stage, never}} {
		chain := newChain(t, Config{}, sockets...)
		for _, method := range []string{"GET", "HEAD", "OPTIONS"} {
			begun := make(chan int, 1)
			srv := serve(t, bounded(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				chain.ServeHTTP(statusWriter{w, begun}, r)
			}), patience))
			c := sendPart(t, srv, method)
			if code := within(t, name+": the response to a "+method, begun); code != http.StatusOK {
				t.Errorf("%s: %s: %d", name, method, code)
			}
			c.Close()
		}
		srv := serve(t, bounded(chain, patience))
		req, _ := http.NewRequest("GET", srv.URL, strings.NewReader("0123456789"))
		req.Header.Set("X-Read", "1")
		resp, err := srv.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if string(body) != "0123456789 <nil>" {
			t.Errorf("%s: the stage has read %q", name, body)
		}
	}
}

// statusWriter reports the status of the response when its head is written.
type statusWriter struct {
	http.ResponseWriter
	begun chan<- int
}

func (w statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
func (w statusWriter) WriteHeader(code int) {
	w.begun <- code
	w.ResponseWriter.WriteHeader(code)
}

// TestReadingAheadEnds shows that a small body which does not come is waited for until
// the request's deadline, and that the connections and requests afterwards are well.
func TestReadingAheadEnds(t *testing.T) {
	t.Parallel()
	stage := serveStage(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body) }))
	failed := make(chan *StageError, 1)
	chain := newChain(t, Config{Error: func(w http.ResponseWriter, r *http.Request, e *StageError) {
		WriteError(w, r, e)
		failed <- e
	}}, stage)
	slow := serve(t, bounded(chain, 50*time.Millisecond))
	for _, method := range []string{"POST", "PUT", "PATCH", "DELETE"} {
		c := sendPart(t, slow, method)
		if e := within(t, "the "+method+" to end", failed); e.Kind != Canceled {
			t.Errorf("%s: %v", method, e)
		}
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil || resp.StatusCode != http.StatusGatewayTimeout {
			t.Errorf("%s: %v, %v", method, resp, err)
		}
	}
	srv := serve(t, bounded(chain, patience))
	for range 10 {
		if resp, body := fetch(t, srv, "POST", "/", strings.NewReader("0123456789")); resp.StatusCode != http.StatusOK || body != "0123456789" {
			t.Errorf("%s %q", resp.Status, body)
		}
	}
}

// TestReadAhead shows that a small body is read before the stage is asked, so that a stage
// may decline after having read it, and that a request without a deadline is not held
// up by its body.
func TestReadAhead(t *testing.T) {
	t.Parallel()
	reads := serveStage(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		decline(w)
	}))
	echo := serveStage(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.Copy(w, r.Body) }))
	chain := newChain(t, Config{}, reads, echo)
	if resp, body := fetch(t, serve(t, bounded(chain, patience)), "POST", "/", strings.NewReader("body")); body != "body" {
		t.Errorf("%s %q", resp.Status, body)
	}
	began := make(chan struct{})
	stage := serveStage(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(began)
		io.Copy(io.Discard, r.Body)
	}))
	c := sendPart(t, serve(t, newChain(t, Config{}, stage)), "POST")
	within(t, "the stage to get the request", began)
	c.Close()
}
