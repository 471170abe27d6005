package httpserver

import (
	"bytes"
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// discarded takes what nobody reads.
var discarded = log.New(io.Discard, "", 0)

const timeout = 20 * time.Second

// logBuffer takes the log of a server.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// listen returns a listening socket.
func listen(t testing.TB) net.Listener {
	t.Helper()
	listener, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	return listener
}

// started is a server that runs.
type started struct {
	*Server
	log  *logBuffer
	path string
}

// start runs a Server.
func start(t testing.TB, handler http.Handler) started {
	t.Helper()
	return startWith(t, handler, func() {})
}

func startWith(t testing.TB, handler http.Handler, ended func()) started {
	t.Helper()
	listener, text := listen(t), &logBuffer{}
	s := started{&Server{Handler: handler, Ended: ended, MaxHead: 1 << 20, Context: t.Context(), ErrorLog: log.New(text, "", 0)}, text, listener.Addr().String()}
	served := make(chan error, 1)
	go func() { served <- s.Serve(listener) }()
	t.Cleanup(func() {
		_ = s.Close()
		if err := <-served; err != http.ErrServerClosed {
			t.Error(err)
		}
	})
	return s
}

// startStandard runs the server of net/http, and returns the path of its socket.
func startStandard(t testing.TB, handler http.Handler) string {
	t.Helper()
	listener := listen(t)
	ctx := t.Context()
	s := &http.Server{
		Handler: handler, MaxHeaderBytes: 1 << 20, DisableGeneralOptionsHandler: true, ErrorLog: discarded,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	go func() { _ = s.Serve(listener) }()
	t.Cleanup(func() { _ = s.Close() })
	return listener.Addr().String()
}

// dial connects to a server. The connection fails after the timeout.
func dial(t testing.TB, path string) *net.UnixConn {
	t.Helper()
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(timeout)); err != nil {
		t.Fatal(err)
	}
	return conn.(*net.UnixConn)
}

func send(t testing.TB, conn io.Writer, text string) {
	t.Helper()
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
}

// await returns what comes by a channel.
func await[T any](t testing.TB, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(timeout):
		t.Fatal("timed out: " + what)
		panic("unreachable")
	}
}
