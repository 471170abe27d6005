package relay

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
)

// fate is what happens to the first request that a stage gets.
type fate string

const (
	notListening fate = "no process listens"           // not delivered
	closedUnread fate = "closed without being read"    // on a connection that was idle; not delivered
	closedRead   fate = "closed after it was read"     // delivered, no response
	partialHead  fate = "closed within the head"       // delivered, the client has seen nothing
	partialBody  fate = "closed within the body"       // delivered, the response has begun
	informed     fate = "closed after 103 and no more" // delivered, the client has seen a 103
	garbage      fate = "garbage in response"          // delivered
)

// TestReplay is rule 5 of the design: a request that may have been executed is never
// sent again, except for safe methods of whose response the client has seen nothing.
func TestReplay(t *testing.T) {
	t.Parallel()
	const (
		again   = "sent again"
		retry   = "503 with Retry-After"
		lost    = "502 without Retry-After"
		aborted = "response cut off"
	)
	safeMethods := []string{"GET", "HEAD", "OPTIONS", "TRACE"}
	unsafeMethods := []string{"POST", "PUT", "PATCH", "DELETE", "GET with an upgrade", "POST of a stream"}
	streams := []string{"GET of a stream"} // safe, but the body cannot be had again
	for f, want := range map[fate]struct{ safe, unsafe, stream string }{
		notListening: {retry, retry, retry},
		closedUnread: {again, again, again},
		closedRead:   {again, lost, retry},
		partialHead:  {again, lost, retry},
		partialBody:  {aborted, aborted, aborted},
		informed:     {aborted, aborted, aborted},
		garbage:      {lost, lost, lost},
	} {
		for _, methods := range []struct {
			names []string
			want  string
		}{{safeMethods, want.safe}, {unsafeMethods, want.unsafe}, {streams, want.stream}} {
			for _, method := range methods.names {
				if f == partialBody && (method == "HEAD" || method == "GET with an upgrade") {
					continue // the response has no body; or: is a 101, see TestUpgrade
				}
				t.Run(fmt.Sprintf("%s/%s", f, method), func(t *testing.T) {
					t.Parallel()
					s := startFated(t, f)
					chain := newChain(t, Config{}, s.socket)
					srv := serve(t, s.upstream(chain))
					s.prepare(t, srv, chain)
					got := replayOutcome(t, srv, method)
					if got != methods.want {
						t.Errorf("%s, want %s", got, methods.want)
					}
					delivered := map[string]int64{again: 2, retry: 1, lost: 1, aborted: 1}[methods.want]
					switch f {
					case notListening:
						delivered = 0
					case closedUnread:
						delivered = 1
					}
					if n := s.delivered.Load(); n != delivered {
						t.Errorf("the stage has got it %d times, want %d", n, delivered)
					}
				})
			}
		}
	}
}

// replayOutcome sends a request of its own kind and puts the response in words.
func replayOutcome(t *testing.T, srv *httptest.Server, method string) string {
	req := httptest.NewRequest(strings.Fields(method)[0], srv.URL+"/", nil)
	req.RequestURI = ""
	switch {
	case strings.HasSuffix(method, "an upgrade"):
		req.Header.Set("Connection", "Upgrade")
		req.Header.Set("Upgrade", "x")
	case strings.HasSuffix(method, "a stream"):
		req.Body, req.ContentLength = io.NopCloser(strings.NewReader("body")), -1
	case !safe(req):
		req.Body, req.ContentLength = io.NopCloser(strings.NewReader("body")), 4
	}
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		return "response cut off"
	}
	defer resp.Body.Close()
	if _, err := io.ReadAll(resp.Body); err != nil {
		return "response cut off"
	}
	switch resp.StatusCode {
	case http.StatusOK:
		return "sent again"
	case http.StatusServiceUnavailable, http.StatusBadGateway:
		with := map[bool]string{true: "without", false: "with"}[resp.Header.Get("Retry-After") == ""]
		return fmt.Sprintf("%d %s Retry-After", resp.StatusCode, with)
	}
	return resp.Status
}

// fated is a stage that lets the fate happen to its first request and responds to those
// that follow.
type fated struct {
	fate      fate
	socket    string
	delivered atomic.Int64
	armed     atomic.Bool
	hungUp    chan struct{}
	hangUp    func()        // closes hungUp
	closed    chan struct{} // the connection has been closed
}

func startFated(t *testing.T, f fate) *fated {
	s := &fated{fate: f, hungUp: make(chan struct{}), closed: make(chan struct{})}
	s.hangUp = sync.OnceFunc(func() { close(s.hungUp) })
	if f == notListening {
		s.socket = t.TempDir() + "/none"
		return s
	}
	s.socket = scriptStage(t, s.script)
	t.Cleanup(s.hangUp)
	return s
}

// prepare makes the pool hold a connection, if the fate is that of such a one.
func (s *fated) prepare(t *testing.T, srv *httptest.Server, chain *Chain) {
	if s.fate != closedUnread {
		return
	}
	if resp, _ := fetch(t, srv, "GET", "/", nil); resp.StatusCode != http.StatusOK {
		t.Fatal(resp.Status)
	}
	s.delivered.Store(0)
	eventually(t, "the connection to be idle", func() bool { return inFlightAt(chain) == 0 })
	s.armed.Store(true)
}

// upstream returns the chain as the server calls it. If the fate is that of an idle
// connection, the stage closes that after the relay has looked at it, and before it writes.
func (s *fated) upstream(chain *Chain) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.armed.Load() {
			r = r.WithContext(watchedContext{r.Context(), func() { s.hangUp(); <-s.closed }})
		}
		chain.ServeHTTP(w, r)
	})
}

// watchedContext calls a function when its end is being watched.
type watchedContext struct {
	context.Context
	watched func()
}

func (c watchedContext) Done() <-chan struct{} {
	c.watched()
	return c.Context.Done()
}

func (s *fated) script(n int, c *net.UnixConn, r *bufio.Reader) {
	if n == 0 && s.fate == closedUnread {
		http.ReadRequest(r)
		io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		<-s.hungUp
		c.Close()
		close(s.closed)
		return
	}
	req, err := http.ReadRequest(r)
	if err != nil {
		return
	}
	if req.Header.Get("Expect") != "" {
		io.WriteString(c, "HTTP/1.1 100 Continue\r\n\r\n")
	}
	io.Copy(io.Discard, req.Body)
	s.delivered.Add(1)
	if n > 0 || s.fate == closedUnread {
		io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		return
	}
	io.WriteString(c, map[fate]string{
		partialHead: "HTTP/1.1 200 OK\r\nContent-Le",
		partialBody: "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc",
		informed:    "HTTP/1.1 103 Early Hints\r\n\r\n",
		garbage:     "hello\r\n\r\n",
	}[s.fate])
}

// TestReplayGoesToTheNewEndpoint shows that a request which meets a stage that is
// being replaced goes to what has replaced it.
func TestReplayGoesToTheNewEndpoint(t *testing.T) {
	t.Parallel()
	var chain *Chain
	response := serveStage(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "new") }))
	old := scriptStage(t, func(_ int, _ *net.UnixConn, r *bufio.Reader) {
		http.ReadRequest(r)
		chain.Set(Tables{All: order(1)}, []Stage{{Name: "a", Socket: response}})
	})
	var seen observed
	chain = newChain(t, Config{Observe: seen.observe}, old)
	srv := serve(t, chain)
	if _, body := fetch(t, srv, "GET", "/", nil); body != "new" || seen.String() != "a replayed, a served" {
		t.Errorf("got %q, observed %s", body, &seen)
	}
}

// TestClosedEndpoint shows that a request which meets a closed endpoint was not sent.
func TestClosedEndpoint(t *testing.T) {
	t.Parallel()
	chain := newChain(t, Config{}, "/nowhere")
	endpointOf(chain).close()
	srv := serve(t, chain)
	if got := replayOutcome(t, srv, "POST"); got != "503 with Retry-After" {
		t.Error(got)
	}
}

func TestErrorsKeepTheirCause(t *testing.T) {
	t.Parallel()
	failed := make(chan *StageError, 1)
	chain := newChain(t, Config{Error: func(w http.ResponseWriter, r *http.Request, e *StageError) { failed <- e }}, "/nowhere")
	chain.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
	if e := <-failed; e.Kind != Unavailable || e.Stage != "a" || !errors.Is(e, syscall.ENOENT) {
		t.Errorf("%+v", e)
	}
}
