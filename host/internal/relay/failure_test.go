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
	"strings"
	"syscall"
	"testing"
)

// TestKilledStage kills the process of a stage in the middle of whatever it does.
func TestKilledStage(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, method, path string
		body               io.Reader
		status             int // 0 if the response has begun
	}{
		{"before the response to a POST", "POST", "/hang", strings.NewReader("x"), http.StatusBadGateway},
		{"before the response to a GET", "GET", "/hang", nil, http.StatusServiceUnavailable}, // sent again, without a process
		{"in a watch", "GET", "/watch", nil, 0},
		{"in an endless response", "GET", "/forever", nil, 0},
		{"in an upload", "POST", "/hang", endless{}, http.StatusBadGateway},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			stage := startStage(t)
			chain := newChain(t, Config{}, stage.socket)
			srv := serve(t, chain)
			status := make(chan error, 1)
			began := make(chan struct{})
			go func() {
				req, _ := http.NewRequest(tc.method, srv.URL+tc.path, tc.body)
				resp, err := srv.Client().Do(req)
				if err == nil {
					defer resp.Body.Close()
				}
				if tc.status != 0 {
					if err == nil && resp.StatusCode != tc.status {
						err = errors.New(resp.Status)
					}
					status <- err
					return
				}
				close(began)
				if err == nil {
					_, err = io.Copy(io.Discard, resp.Body)
				}
				if err == nil {
					status <- errors.New("the client takes a part for the whole")
				} else {
					status <- nil
				}
			}()
			if tc.status == 0 {
				within(t, "the head of the response", began)
			} else {
				eventually(t, "the stage to have the request", func() bool { return inFlightAt(chain) == 1 && stage.ask(t, "/hanging") == 1 })
			}
			stage.Kill()
			if err := within(t, "the client to see the end", status); err != nil {
				t.Error(err)
			}
		})
	}
}

// endless is a body that never ends.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// TestStoppedStage stops a stage's process. Its requests end with their context, and
// go on if the process does before that.
func TestStoppedStage(t *testing.T) {
	t.Parallel()
	stage := startStage(t)
	chain := newChain(t, Config{}, stage.socket)
	chain.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/size/1", nil)) // an idle connection
	stage.suspend(t)
	cause := errors.New("enough")
	for _, r := range []*http.Request{
		httptest.NewRequest("GET", "/size/1", nil),
		httptest.NewRequest("POST", "/echo", strings.NewReader(strings.Repeat("x", 1000))),
		httptest.NewRequest("POST", "/echo", strings.NewReader(strings.Repeat("x", 10<<20))),
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		failed := make(chan *StageError, 1)
		c := newChain(t, Config{Error: func(_ http.ResponseWriter, _ *http.Request, e *StageError) { failed <- e }}, stage.socket)
		go c.ServeHTTP(httptest.NewRecorder(), r.WithContext(ctx))
		eventually(t, "the request to be under way", func() bool { return inFlightAt(c) == 1 })
		cancel(cause)
		if err := within(t, "the request to end with its context", failed); err.Kind != Canceled || !errors.Is(err, cause) {
			t.Errorf("%s of %d bytes: %v", r.Method, r.ContentLength, err)
		}
	}
	rec := httptest.NewRecorder()
	done := make(chan struct{})
	go func() {
		chain.ServeHTTP(rec, httptest.NewRequest("GET", "/size/5", nil))
		close(done)
	}()
	eventually(t, "the request to be under way", func() bool { return inFlightAt(chain) == 1 })
	select {
	case <-done:
		t.Error("response from a stopped process")
	default:
	}
	stage.Signal(syscall.SIGCONT)
	within(t, "the response of the stage that goes on", done)
	if rec.Body.Len() != 5 {
		t.Errorf("%d %q", rec.Code, rec.Body)
	}
}

// TestRestartedStage restarts a stage while there are idle connections to it. None of these is
// used for a request that could be executed once more.
func TestRestartedStage(t *testing.T) {
	t.Parallel()
	stage := startStage(t)
	chain := newChain(t, Config{}, stage.socket)
	srv := serve(t, chain)
	for range 3 {
		for range 20 {
			go func() {
				if resp, err := srv.Client().Get(srv.URL + "/size/10000"); err == nil {
					resp.Body.Close()
				}
			}()
		}
		fetch(t, srv, "GET", "/size/1", nil)
		stage.Kill()
		stage.Wait()
		os.Remove(stage.socket)
		stage = startStageAt(t, stage.socket)
		for range 20 {
			if resp, body := fetch(t, srv, "POST", "/echo", strings.NewReader("once")); resp.StatusCode != http.StatusOK || body != "once" {
				t.Fatalf("%s %s", resp.Status, body)
			}
		}
	}
}

// TestClientLeaves has the client go away at every point. The stage sees it each time.
func TestClientLeaves(t *testing.T) {
	t.Parallel()
	const part = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"
	for name, said := range map[string]string{"before the response": "", "in the head": part[:20], "in the body": part, "in a chunk": part + "100\r\nabc"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, ended := make(chan struct{}), make(chan struct{})
			stage := scriptStage(t, func(_ int, c *net.UnixConn, r *bufio.Reader) {
				http.ReadRequest(r)
				io.WriteString(c, said)
				close(got)
				io.Copy(io.Discard, r)
				close(ended)
			})
			var seen observed
			srv := serve(t, newChain(t, Config{Observe: seen.observe}, stage))
			c, err := net.Dial("tcp", srv.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
			within(t, "the stage to get the request", got)
			c.Close()
			within(t, "the stage to see the end", ended)
			eventually(t, "the relay to be done", func() bool { return seen.String() == "a canceled" })
		})
	}
}

// TestAbortIsQuiet shows that the handler does not panic when a client leaves, and
// does when a stage breaks off.
func TestAbortIsQuiet(t *testing.T) {
	t.Parallel()
	stage := scriptStage(t, func(_ int, c *net.UnixConn, r *bufio.Reader) {
		req, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc")
		if req.URL.Path == "/wait" {
			io.Copy(io.Discard, r)
		}
	})
	chain := newChain(t, Config{}, stage)
	// serve ends the request's context in the given way once the response has begun.
	serve := func(path string, end error) (v any) {
		defer func() { v = recover() }()
		ctx := &endingContext{Context: t.Context(), done: make(chan struct{}), err: end}
		chain.ServeHTTP(writeHook{httptest.NewRecorder(), func() {
			if end != nil {
				close(ctx.done)
			}
		}}, httptest.NewRequestWithContext(ctx, "GET", path, nil))
		return nil
	}
	for _, tc := range []struct {
		what string
		got  any
		want any
	}{
		{"the stage breaks off", serve("/", nil), http.ErrAbortHandler},
		{"the client leaves", serve("/wait", context.Canceled), nil},
		{"the deadline passes", serve("/wait", context.DeadlineExceeded), http.ErrAbortHandler},
	} {
		if tc.got != tc.want {
			t.Errorf("%s: panic %v, want %v", tc.what, tc.got, tc.want)
		}
	}
}

// endingContext ends when its channel is closed.
type endingContext struct {
	context.Context
	done chan struct{}
	err  error
}

func (c *endingContext) Done() <-chan struct{} { return c.done }
func (c *endingContext) Err() error {
	select {
	case <-c.done:
		return c.err
	default:
		return nil
	}
}

// writeHook calls a function at each write.
type writeHook struct {
	http.ResponseWriter
	hook func()
}

func (w writeHook) Write(p []byte) (int, error) {
	w.hook()
	return w.ResponseWriter.Write(p)
}

// TestDownStage shows that the requests of a stage which is down do not fall through
// to those downstream of it.
func TestDownStage(t *testing.T) {
	t.Parallel()
	chain := newChain(t, Config{}, serveStage(t, http.HandlerFunc(describe)))
	chain.Set(Tables{All: order(2)}, []Stage{{Name: "down"}, {Name: "a", Socket: endpointOf(chain).socket}})
	srv := serve(t, chain)
	resp, body := fetch(t, srv, "GET", "/", nil)
	if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" || !strings.Contains(body, `"down"`) {
		t.Errorf("%s %v %s", resp.Status, resp.Header, body)
	}
	srv = serve(t, NewChain(Config{}))
	if resp, _ := fetch(t, srv, "GET", "/", nil); resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("chain without a snapshot: %s", resp.Status)
	}
}

// TestPanickingWriter shows that a panic of a filter's writer leaves nothing open.
func TestPanickingWriter(t *testing.T) {
	t.Parallel()
	stage := startStage(t)
	chain := newChain(t, Config{}, stage.socket)
	func() {
		defer func() { recover() }()
		chain.ServeHTTP(panicWriter{httptest.NewRecorder()}, httptest.NewRequest("GET", "/forever", nil))
	}()
	if n := inFlightAt(chain); n != 0 {
		t.Errorf("%d in flight", n)
	}
	if _, ok := chain.inFlight.call(1, stage.socket); ok {
		t.Error("the request can still be handed on")
	}
}

type panicWriter struct{ http.ResponseWriter }

func (panicWriter) Write([]byte) (int, error) { panic("writer") }
