package httpserver

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

const plain = "GET / HTTP/1.1\r\nHost: h\r\n\r\n"

// read reads a response and its body.
func read(t testing.TB, in *bufio.Reader) (*http.Response, string) {
	t.Helper()
	resp, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

// The context ends when the handler has returned, also for who asks after that.
func TestContextEnds(t *testing.T) {
	t.Parallel()
	contexts := make(chan context.Context, 2)
	s := start(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/wait" {
			_ = r.Context().Done()
		}
		contexts <- r.Context()
	}))
	for _, path := range []string{"/", "/wait"} {
		conn := dial(t, s.path)
		send(t, conn, "GET "+path+" HTTP/1.1\r\nHost: h\r\n\r\n")
		read(t, bufio.NewReader(conn))
		ctx := await(t, "the context", contexts)
		await(t, "the end of the context", ctx.Done())
		if err := ctx.Err(); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if addr, ok := ctx.Value(http.LocalAddrContextKey).(net.Addr); !ok || addr.String() != s.path {
			t.Errorf("address %v", addr)
		}
	}
}

// A handler that panics or ends its goroutine ends its connection and nothing else. Only a panic that is none of http.ErrAbortHandler is logged.
func TestPanics(t *testing.T) {
	t.Parallel()
	s := start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte("begun"))
		_ = http.NewResponseController(w).Flush()
		switch r.URL.Path {
		case "/abort":
			panic(http.ErrAbortHandler)
		case "/exit":
			runtime.Goexit()
		case "/panic":
			panic("a mistake")
		}
	}))
	for _, path := range []string{"/abort", "/exit", "/panic"} {
		conn := dial(t, s.path)
		send(t, conn, "GET "+path+" HTTP/1.1\r\nHost: h\r\n\r\n")
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		if body, err := io.ReadAll(resp.Body); string(body) != "begun" || !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%s: %q, %v", path, body, err)
		}
		if text := s.log.String(); strings.Contains(text, "a mistake") != (path == "/panic") || path != "/panic" && text != "" {
			t.Errorf("%s: log %s", path, text)
		}
	}
	if !strings.Contains(s.log.String(), "TestPanics") {
		t.Errorf("no stack: %s", s.log)
	}
}

// What a proxy could not pass on to its end does not look complete.
func TestProxyBreaksOff(t *testing.T) {
	t.Parallel()
	origin := start(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(make([]byte, 2*mostBuffered))
		panic(http.ErrAbortHandler)
	}))
	transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return net.Dial("unix", origin.path) }}
	defer transport.CloseIdleConnections()
	proxy := start(t, &httputil.ReverseProxy{
		Transport: transport,
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "http", Host: "origin"}) },
		ErrorLog:  discarded,
	})
	conn := dial(t, proxy.path)
	send(t, conn, plain)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	if body, err := io.ReadAll(resp.Body); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("%d bytes, %v", len(body), err)
	}
}

// A handler that takes a connection over gets what has been received, and keeps the connection when it returns and when the server is closed.
func TestHijack(t *testing.T) {
	t.Parallel()
	type taken struct {
		conn     net.Conn
		buffered *bufio.ReadWriter
		ctx      context.Context
	}
	takes, ended := make(chan taken, 1), make(chan struct{})
	s := start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
		}
		if _, err := w.Write([]byte("late")); !errors.Is(err, http.ErrHijacked) {
			t.Errorf("write afterwards: %v", err)
		}
		if _, _, err := http.NewResponseController(w).Hijack(); !errors.Is(err, http.ErrHijacked) {
			t.Errorf("again: %v", err)
		}
		if err := r.Context().Err(); err != nil {
			t.Errorf("the context has ended before the handler: %v", err)
		}
		takes <- taken{conn, buffered, r.Context()}
		close(ended)
	}))
	conn := dial(t, s.path)
	send(t, conn, plain+"early data\n")
	k := await(t, "the connection", takes)
	await(t, "the handler", ended)
	await(t, "the end of the context", k.ctx.Done())
	if n := k.buffered.Reader.Buffered(); n != len("early data\n") {
		t.Errorf("%d bytes are buffered", n)
	}
	_ = s.Close()
	send(t, conn, "more\n")
	for _, want := range []string{"early data\n", "more\n"} {
		if line, err := k.buffered.ReadString('\n'); line != want || err != nil {
			t.Errorf("%q, %v", line, err)
		}
	}
	if _, err := k.conn.Write([]byte("response\n")); err != nil {
		t.Error(err)
	}
	if line, err := bufio.NewReader(conn).ReadString('\n'); line != "response\n" {
		t.Errorf("%q, %v", line, err)
	}
	_ = k.conn.Close()
}

// The body is asked for when it is read first, and not if the response has begun before.
func TestContinue(t *testing.T) {
	t.Parallel()
	s := start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/unread" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		text, err := io.ReadAll(r.Body)
		fmt.Fprint(w, string(text), err)
	}))
	conn := dial(t, s.path)
	in := bufio.NewReader(conn)
	for range 2 {
		send(t, conn, "PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\nExpect: 100-Continue\r\n\r\n")
		if resp, _ := read(t, in); resp.StatusCode != http.StatusContinue {
			t.Fatal(resp.Status)
		}
		send(t, conn, "body")
		if resp, body := read(t, in); body != "body<nil>" || resp.Close {
			t.Errorf("%q, close %v", body, resp.Close)
		}
	}
	send(t, conn, "PUT /unread HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n")
	if resp, _ := read(t, in); resp.StatusCode != http.StatusForbidden || !resp.Close {
		t.Errorf("%s, close %v", resp.Status, resp.Close)
	}
	if _, err := in.ReadByte(); err != io.EOF {
		t.Errorf("after that: %v", err)
	}
}

// More of a body than a server would receive for nothing is not received: the response says that the connection ends, and the rest cannot be sent.
func TestLongUnreadBody(t *testing.T) {
	t.Parallel()
	s := start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = r.Body.Read(make([]byte, 100))
		w.WriteHeader(http.StatusRequestEntityTooLarge)
	}))
	for _, framing := range []string{"Content-Length: 4194304", "Transfer-Encoding: chunked"} {
		conn := dial(t, s.path)
		sent := make(chan error, 1)
		go func() {
			_, err := io.WriteString(conn, "POST / HTTP/1.1\r\nHost: h\r\n"+framing+"\r\n\r\n400000\r\n"+strings.Repeat("x", 4<<20))
			sent <- err
		}()
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != http.StatusRequestEntityTooLarge || !resp.Close {
			t.Errorf("%s: %s, close %v", framing, resp.Status, resp.Close)
		}
		if err := await(t, "the end of the body", sent); err == nil {
			t.Errorf("%s: all has been sent", framing)
		}
	}
}

// Nothing of a body of up to mostBuffered bytes is sent before the handler returns or flushes, whatever the writes are. What is in chunks comes
// with its end then.
func TestHeldBack(t *testing.T) {
	t.Parallel()
	for _, writes := range [][]int{{1}, {mostSilent}, {mostSilent + 1}, {mostBuffered}, {1, mostBuffered - 1}, {mostSilent, mostSilent}, {mostSilent + 1, 1, 1}} {
		written, looked := make(chan struct{}), make(chan struct{})
		s := start(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			for _, n := range writes {
				if _, err := w.Write(make([]byte, n)); err != nil {
					t.Error(err)
				}
			}
			close(written)
			<-looked
		}))
		conn := dial(t, s.path)
		send(t, conn, plain)
		await(t, "the writes", written)
		if came := receivedBy(t, conn); len(came) > 0 {
			t.Errorf("writes of %v: %d bytes come while the handler runs", writes, len(came))
		}
		close(looked)
		received := make([]byte, 2*mostBuffered)
		n, err := conn.Read(received)
		if err != nil {
			t.Fatal(err)
		}
		in := bufio.NewReader(bytes.NewReader(received[:n]))
		want := 0
		for _, n := range writes {
			want += n
		}
		if _, body := read(t, in); len(body) != want || in.Buffered() != 0 {
			t.Errorf("writes of %v: the body has %d bytes, %d follow", writes, len(body), in.Buffered())
		}
	}
}

// receivedBy returns what there is to read from a connection.
func receivedBy(t *testing.T, conn *net.UnixConn) []byte {
	t.Helper()
	raw, err := conn.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	buf, n := make([]byte, 64<<10), 0
	err = raw.Read(func(fd uintptr) bool {
		if n, err = syscall.Read(int(fd), buf); err != nil && !errors.Is(err, syscall.EAGAIN) {
			t.Error(err)
		}
		return true
	})
	if err != nil {
		t.Error(err)
	}
	return buf[:max(n, 0)]
}

// A request ends when its response has been written to the last byte: whoever waits for its end may close the server.
func TestEnded(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		handler http.HandlerFunc
		end     string
	}{
		"no body":  {func(http.ResponseWriter, *http.Request) {}, "\r\n\r\n"},
		"a length": {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("all")) }, "\r\n\r\nall"},
		"chunks": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte("some"))
			_ = http.NewResponseController(w).Flush()
		}, "0\r\n\r\n"},
		"abort": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, ""},
		"exit":  {func(http.ResponseWriter, *http.Request) { runtime.Goexit() }, ""},
		"hijack": {func(w http.ResponseWriter, _ *http.Request) {
			if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
				_, _ = conn.Write([]byte("mine"))
			}
		}, "mine"},
	} {
		client, ended := make(chan *net.UnixConn, 1), make(chan []byte, 2)
		s := startWith(t, tc.handler, func() {
			conn := <-client
			ended <- receivedBy(t, conn)
			client <- conn
		})
		conn := dial(t, s.path)
		client <- conn
		send(t, conn, plain)
		if got := await(t, name+": the end", ended); !bytes.HasSuffix(got, []byte(tc.end)) || len(tc.end) == 0 && len(got) > 0 {
			t.Errorf("%s: %q has come when the request ends", name, got)
		}
		_ = s.Close()
		if len(ended) > 0 {
			t.Errorf("%s: the request has ended twice", name)
		}
	}
}

// When the client has gone, a flush fails and ends the request, and a long write fails, but what is held back does not.
func TestClientGone(t *testing.T) {
	t.Parallel()
	gone, ended := make(chan struct{}), make(chan struct{})
	s := start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(ended)
		control := http.NewResponseController(w)
		if err := control.Flush(); err != nil {
			t.Error(err)
		}
		<-gone
		for range 2 {
			if _, err := w.Write([]byte("event")); err != nil {
				t.Errorf("a short write: %v", err)
			}
			if err := control.Flush(); !errors.Is(err, syscall.EPIPE) {
				t.Errorf("flush: %v", err)
			}
			if r.Context().Err() == nil {
				t.Error("the request goes on after that")
			}
		}
		if _, err := w.Write(make([]byte, 2*mostBuffered)); !errors.Is(err, syscall.EPIPE) {
			t.Errorf("a long write: %v", err)
		}
	}))
	conn := dial(t, s.path)
	send(t, conn, plain)
	if _, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	close(gone)
	await(t, "the handler", ended)
}

// A deadline that a handler sets holds for its request alone.
func TestDeadlines(t *testing.T) {
	t.Parallel()
	s := start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		if err := errors.Join(control.EnableFullDuplex(), control.SetReadDeadline(time.Now().Add(-time.Second))); err != nil {
			t.Error(err)
		}
		if r.Method == http.MethodPut {
			if _, err := io.ReadAll(r.Body); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("the body was read after the deadline: %v", err)
			}
		}
	}))
	conn := dial(t, s.path)
	in := bufio.NewReader(conn)
	for _, request := range []string{plain, plain, "PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\n"} {
		send(t, conn, request)
		if resp, _ := read(t, in); resp.StatusCode != http.StatusOK {
			t.Error(resp.Status)
		}
	}
}

// Close ends idle connections and those with a request, and accepts no more.
func TestClose(t *testing.T) {
	t.Parallel()
	begun, release := make(chan struct{}), make(chan struct{})
	defer close(release)
	s := start(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		close(begun)
		<-release
	}))
	idle, busy := dial(t, s.path), dial(t, s.path)
	send(t, busy, plain)
	await(t, "the request", begun)
	_ = s.Close()
	for _, conn := range []net.Conn{idle, busy} {
		if _, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("read: %v", err)
		}
	}
	if _, err := net.Dial("unix", s.path); err == nil {
		t.Error("a connection was accepted")
	}
}

// Shutdown ends idle connections at once, and those with a request when that has got its response.
func TestShutdown(t *testing.T) {
	t.Parallel()
	begun, release := make(chan struct{}), make(chan struct{})
	s := start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			close(begun)
			<-release
		}
		_, _ = w.Write([]byte("all"))
	}))
	idle, busy := dial(t, s.path), dial(t, s.path)
	send(t, idle, plain)
	read(t, bufio.NewReader(idle))
	send(t, busy, "POST / HTTP/1.1\r\nHost: h\r\n\r\n")
	await(t, "the request", begun)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Shutdown(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("with a request: %v", err)
	}
	if _, err := idle.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("an idle connection: %v", err)
	}
	if _, err := net.Dial("unix", s.path); err == nil {
		t.Error("a connection was accepted")
	}
	over := make(chan error, 1)
	go func() { over <- s.Shutdown(t.Context()) }()
	close(release)
	in := bufio.NewReader(busy)
	if _, body := read(t, in); body != "all" {
		t.Errorf("the response is %q", body)
	}
	await(t, "the end of Shutdown", over)
	if _, err := in.ReadByte(); !errors.Is(err, io.EOF) {
		t.Errorf("after the response: %v", err)
	}
}

// Many clients at once get their own responses, whatever else happens on other connections. It is for the race detector.
func TestManyClients(t *testing.T) {
	t.Parallel()
	s := start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "7") {
			<-r.Context().Done()
			return
		}
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s%s", r.URL.Path, body, strings.Repeat("x", len(body)%5000))
	}))
	const clients, each = 16, 100
	errs := make(chan error, clients)
	dialSocket := func(context.Context, string, string) (net.Conn, error) { return net.Dial("unix", s.path) }
	for i := range clients {
		go func() {
			client := &http.Client{Timeout: timeout, Transport: &http.Transport{DialContext: dialSocket}}
			defer client.CloseIdleConnections()
			errs <- func() error {
				for j := range each {
					path := fmt.Sprintf("/%d/%d", i, j)
					ctx, cancel := context.WithTimeout(context.Background(), timeout)
					if strings.HasSuffix(path, "7") {
						ctx, cancel = context.WithTimeout(context.Background(), 2*patience)
					}
					defer cancel()
					sent := strings.Repeat("y", (i*each+j)*7)
					req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://h"+path, strings.NewReader(sent))
					if err != nil {
						return err
					}
					resp, err := client.Do(req)
					if strings.HasSuffix(path, "7") {
						continue
					}
					if err != nil {
						return err
					}
					body, err := io.ReadAll(resp.Body)
					_ = resp.Body.Close()
					if want := path + " " + sent + strings.Repeat("x", len(sent)%5000); string(body) != want {
						return fmt.Errorf("%s: %d bytes, want %d: %w", path, len(body), len(want), err)
					}
				}
				return nil
			}()
		}()
	}
	for range clients {
		if err := await(t, "a client", errs); err != nil {
			t.Error(err)
		}
	}
}

func BenchmarkServer(b *testing.B) {
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte("a response")) })
	request := "GET /api/v1/namespaces/default/configmaps/a HTTP/1.1\r\nHost: h\r\nUser-Agent: benchmark\r\nAccept: application/json\r\nX-Catena-Request: 1\r\nX-Catena-User: {}\r\nX-Catena-Timeout: 60000\r\n\r\n"
	for name, path := range map[string]string{"own": start(b, handler).path, "standard": startStandard(b, handler)} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			conn := dial(b, path)
			_ = conn.SetDeadline(time.Time{})
			buf := make([]byte, 4096)
			for b.Loop() {
				send(b, conn, request)
				if _, err := conn.Read(buf); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
