package relay

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// withTimeout runs h like the timeout filter of an API server: on a goroutine of its
// own, with a copy of the request and with a writer that takes nothing more when the
// time is over. The server's goroutine responds with 504 then and does not wait for h.
// Requests that can get a response have all the time that they need.
func withTimeout(h http.Handler, timeout time.Duration) (filtered http.Handler, left *sync.WaitGroup) {
	left = &sync.WaitGroup{}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/hang" {
			h.ServeHTTP(w, r)
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), timeout)
		defer cancel()
		tw := &timeoutWriter{w: w, h: w.Header().Clone(), over: make(chan struct{})}
		done := make(chan any, 1)
		left.Go(func() {
			defer func() { done <- recover() }()
			h.ServeHTTP(tw, r.Clone(context.WithValue(ctx, timeoutWriterKey{}, tw)))
		})
		select {
		case v := <-done:
			if v != nil {
				panic(v)
			}
		case <-ctx.Done():
			tw.timeout()
		}
	}), left
}

// timeoutWriterKey is that of the timeoutWriter in a request's context.
type timeoutWriterKey struct{}

type timeoutWriter struct {
	mu           sync.Mutex
	w            http.ResponseWriter
	h            http.Header
	begun, ended bool
	over         chan struct{} // closed when the response is the filter's
}

func (t *timeoutWriter) Unwrap() http.ResponseWriter { return t.w }
func (t *timeoutWriter) Header() http.Header         { return t.h }

func (t *timeoutWriter) WriteHeader(code int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.begun || t.ended {
		return
	}
	t.begun = true
	for k, v := range t.h {
		t.w.Header()[k] = v
	}
	t.w.WriteHeader(code)
}

func (t *timeoutWriter) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		return 0, http.ErrHandlerTimeout
	}
	return t.w.Write(p)
}

func (t *timeoutWriter) Flush() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.ended {
		t.w.(http.Flusher).Flush()
	}
}

func (t *timeoutWriter) timeout() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = true
	close(t.over)
	if t.begun {
		panic(http.ErrAbortHandler)
	}
	t.w.WriteHeader(http.StatusGatewayTimeout)
}

// TestTimeoutFilter lets requests run into the timeout filter wherever they are. The
// client gets 504, and the connection serves the next request if it can.
func TestTimeoutFilter(t *testing.T) {
	t.Parallel()
	stage := startStage(t)
	for _, tc := range []struct {
		name, request string
		reused        bool
	}{
		{"no body", "GET /hang HTTP/1.1\r\nHost: h\r\n\r\n", true},
		{"small body", "POST /hang HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc", true},
		{"stream", "POST /hang HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", false},
		{"large body", "POST /hang HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\n" + strings.Repeat("x", 500000), false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			chain := newChain(t, Config{Error: func(w http.ResponseWriter, r *http.Request, e *StageError) {
				if e.Kind == Canceled {
					<-r.Context().Value(timeoutWriterKey{}).(*timeoutWriter).over
				}
				WriteError(w, r, e)
			}}, stage.socket)
			handler, left := withTimeout(chain, 300*time.Millisecond)
			srv := serve(t, handler)
			c, err := net.Dial("tcp", srv.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			io.WriteString(c, tc.request)
			r := bufio.NewReader(c)
			resp, err := http.ReadResponse(r, nil)
			if err != nil {
				t.Fatal(err)
			}
			io.Copy(io.Discard, resp.Body)
			if resp.StatusCode != http.StatusGatewayTimeout {
				t.Fatal(resp.Status)
			}
			if !tc.reused {
				return
			}
			left.Wait()
			io.WriteString(c, "GET /size/3 HTTP/1.1\r\nHost: h\r\n\r\n")
			resp, err = http.ReadResponse(r, nil)
			if err != nil {
				t.Fatalf("next request: %v", err)
			}
			if body, err := io.ReadAll(resp.Body); len(body) != 3 || err != nil {
				t.Errorf("next request: %s %q, %v", resp.Status, body, err)
			}
			eventually(t, "all requests to end", func() bool { return inFlightAt(chain) == 0 })
		})
	}
}
