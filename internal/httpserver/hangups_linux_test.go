package httpserver

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"
)

// closeNotifier is what k8s.io/apiserver asks writers for.
type closeNotifier interface{ CloseNotify() <-chan bool }

// The context of a request, and what is derived from it, ends when the client closes the connection, whether the handler waits for it from the beginning or
// later, and CloseNotify tells.
func TestHangUp(t *testing.T) {
	t.Parallel()
	for name, wait := range map[string]func(http.ResponseWriter, *http.Request, <-chan struct{}){
		"context": func(_ http.ResponseWriter, r *http.Request, _ <-chan struct{}) { <-r.Context().Done() },
		"derived": func(_ http.ResponseWriter, r *http.Request, _ <-chan struct{}) {
			ctx, cancel := context.WithTimeout(context.WithValue(r.Context(), http.ServerContextKey, 1), time.Hour)
			defer cancel()
			<-ctx.Done()
		},
		"later": func(_ http.ResponseWriter, r *http.Request, closed <-chan struct{}) {
			<-closed
			for r.Context().Err() == nil {
				runtime.Gosched()
			}
			<-r.Context().Done()
		},
		"notified": func(w http.ResponseWriter, _ *http.Request, _ <-chan struct{}) {
			<-w.(closeNotifier).CloseNotify()
		},
		"notified later": func(w http.ResponseWriter, r *http.Request, _ <-chan struct{}) {
			<-r.Context().Done()
			<-w.(closeNotifier).CloseNotify()
		},
		"body unread": func(_ http.ResponseWriter, r *http.Request, _ <-chan struct{}) {
			r.Method = "changed"
			<-r.Context().Done()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			begun, closed, ended := make(chan error, 1), make(chan struct{}), make(chan error, 1)
			s := start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				begun <- nil
				wait(w, r, closed)
				ended <- r.Context().Err()
			}))
			conn := dial(t, s.path)
			send(t, conn, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello")
			if err := await(t, "the request", begun); err != nil {
				t.Fatal(err)
			}
			_ = conn.Close()
			close(closed)
			if err := await(t, "the end of the request", ended); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
	}
}

// awaitWatched returns when the system has been asked to tell the end of n connections.
func awaitWatched(t *testing.T, s *Server, n int) {
	t.Helper()
	for deadline := time.Now().Add(timeout); ; time.Sleep(time.Millisecond) {
		s.hangups.mu.Lock()
		watched := len(s.hangups.names)
		s.hangups.mu.Unlock()
		if watched == n {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d connections are watched, want %d", watched, n)
		}
	}
}

// The connection of a response that is flushed is watched from then on.
func TestStreamIsWatched(t *testing.T) {
	t.Parallel()
	var s started
	ended := make(chan error, 1)
	s = start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Error(err)
		}
		s.hangups.mu.Lock()
		watched := len(s.hangups.names)
		s.hangups.mu.Unlock()
		if watched != 1 {
			t.Errorf("%d connections are watched", watched)
		}
		<-r.Context().Done()
		ended <- r.Context().Err()
	}))
	conn := dial(t, s.path)
	send(t, conn, plain)
	if _, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	if err := await(t, "the end of the request", ended); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// A request that has not been hung up goes on when its connection is watched, and so does the next one on it.
func TestNoHangUp(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	s := start(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
			t.Error("the context has ended")
		case <-release:
		}
	}))
	conn := dial(t, s.path)
	in := bufio.NewReader(conn)
	for range 3 {
		send(t, conn, plain)
		awaitWatched(t, s.Server, 1)
		release <- struct{}{}
		read(t, in)
		awaitWatched(t, s.Server, 0)
	}
}

// Connections have one goroutine each, whether a request runs or not.
func TestGoroutines(t *testing.T) {
	release := make(chan struct{})
	begun := make(chan struct{}, 100)
	s := start(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		begun <- struct{}{}
		<-release
	}))
	before := runtime.NumGoroutine()
	var conns []*net.UnixConn
	for range 100 {
		conns = append(conns, dial(t, s.path))
	}
	for _, conn := range conns[:50] {
		send(t, conn, plain)
		await(t, "a request", begun)
	}
	awaitWatched(t, s.Server, 50)
	const watcher = 1
	if n := runtime.NumGoroutine() - before; n > len(conns)+watcher {
		t.Errorf("%d goroutines for %d connections", n, len(conns))
	}
	close(release)
	for _, conn := range conns[:50] {
		read(t, bufio.NewReader(conn))
	}
}

// A client that sends no more may still wait for its response: a request whose body has not been read goes on, and has
// ended when it has.
func TestHalfClosed(t *testing.T) {
	t.Parallel()
	gates := map[string]chan struct{}{"own": make(chan struct{}), "net/http": make(chan struct{})}
	onBoth(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			<-gates[r.URL.Query().Get("server")]
			if err := r.Context().Err(); err != nil {
				t.Errorf("the request has ended before its body was read: %v", err)
			}
			if body, err := io.ReadAll(r.Body); string(body) != "body" || err != nil {
				t.Errorf("%q, %v", body, err)
			}
		}
		await(t, "the end of the request", r.Context().Done())
		_, _ = io.WriteString(w, "response")
	}), func(t *testing.T, path string) {
		_, server, _ := strings.Cut(t.Name(), "/")
		post, get := dial(t, path), dial(t, path)
		send(t, post, "POST /?server="+server+" HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nbody")
		_ = post.CloseWrite()
		send(t, get, plain)
		_ = get.CloseWrite()
		for _, conn := range []*net.UnixConn{get, post} {
			if got, err := io.ReadAll(conn); !strings.HasSuffix(string(got), "response") {
				t.Errorf("%q, %v", got, err)
			}
			if conn == get {
				close(gates[server]) // by then, the server has been told of both
			}
		}
	})
}
