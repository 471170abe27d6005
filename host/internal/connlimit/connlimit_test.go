package connlimit

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

const patience = time.Minute

// fixture serves on a socket.
type fixture struct {
	*Listener
	network, address string

	mu      sync.Mutex
	refused []string
	release chan struct{}
}

// serve responds to requests; those for /wait when release is closed.
func serve(t *testing.T, network string, o Options) *fixture {
	t.Helper()
	address := "127.0.0.1:0"
	if network == "unix" {
		address = filepath.Join(t.TempDir(), "s")
	}
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{network: network, address: l.Addr().String(), release: make(chan struct{})}
	o.Refused = f.refuse
	f.Listener = New(l, o)
	type key struct{}
	srv := &http.Server{
		MaxHeaderBytes: 1 << 20,
		ConnContext:    func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, key{}, c) },
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			c := r.Context().Value(key{}).(*Conn)
			held, serve := c.Begin(r)
			if !serve {
				panic(http.ErrAbortHandler)
			}
			defer c.End(w, held)
			_, _ = io.Copy(io.Discard, r.Body)
			if r.URL.Path == "/wait" {
				<-f.release
			}
		}),
	}
	go func() { _ = srv.Serve(f) }()
	t.Cleanup(func() { srv.Close() })
	return f
}

func (f *fixture) refuse(reason string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refused = append(f.refused, reason)
}

func (f *fixture) reasons() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return strings.Join(f.refused, ", ")
}

func (f *fixture) dial(t *testing.T) net.Conn {
	t.Helper()
	c, err := net.Dial(f.network, f.address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	return c
}

// get makes a request on a connection and returns whether there was a response.
func get(c net.Conn, path string) error {
	if _, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path); err != nil {
		return err
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// ended reports whether the other side has closed a connection.
func ended(c net.Conn) bool {
	_, err := c.Read(make([]byte, 1))
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !f(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(what)
		}
	}
}

func TestConnections(t *testing.T) {
	t.Parallel()
	var unbounded atomic.Bool
	f := serve(t, "unix", Options{Connections: 2, Unbounded: unbounded.Load})
	var conns []net.Conn
	for i := range 5 {
		unbounded.Store(i > 2)
		conns = append(conns, f.dial(t))
		if err := get(conns[i], "/"); (err == nil) != (i != 2) {
			t.Errorf("connection %d: %v", i, err)
		}
	}
	if got := f.reasons(); got != "connections" {
		t.Errorf("refused: %s", got)
	}
	unbounded.Store(false)
	for _, i := range []int{0, 1, 3} {
		conns[i].Close()
	}
	eventually(t, "the connections are not forgotten", func() bool { return len(f.Open()) == 1 })
	if err := get(f.dial(t), "/"); err != nil {
		t.Errorf("after some have ended: %v", err)
	}
}

// Of the connections, those are closed that have been idle for long enough: not those with a request, nor those that are new.
func TestCloseIdle(t *testing.T) {
	t.Parallel()
	f := serve(t, "unix", Options{})
	idle, busy := f.dial(t), f.dial(t)
	if err := get(idle, "/"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(busy, "GET /wait HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the request has not begun", func() bool {
		return slices.ContainsFunc(f.Open(), func(c *Conn) bool { return c.active.Load() == 1 })
	})
	f.CloseIdle(time.Hour)
	if err := get(idle, "/"); err != nil {
		t.Errorf("after an hour's: %v", err)
	}
	f.CloseIdle(0)
	if !ended(idle) {
		t.Error("an idle connection is open")
	}
	if n := len(f.Open()); n != 1 {
		t.Errorf("%d connections are open, want that with a request", n)
	}
}

// A head counts from its first byte to the end of its request, bodies do not.
func TestHeads(t *testing.T) {
	t.Parallel()
	f := serve(t, "unix", Options{Heads: 100 << 10})
	head := strings.Repeat("A: "+strings.Repeat("a", 1000)+"\r\n", 60) // 60 KB
	first := f.dial(t)
	if _, err := io.WriteString(first, "GET /wait HTTP/1.1\r\nHost: x\r\n"+head); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the first head does not count", func() bool {
		all := f.Open()
		return len(all) == 1 && f.held.Load() > 40<<10
	})
	if _, err := io.WriteString(first, "\r\n"); err != nil { // its request has begun, and holds it still
		t.Fatal(err)
	}
	eventually(t, "the first request does not begin", func() bool { return f.Open()[0].active.Load() == 1 })
	second := f.dial(t)
	_, _ = io.WriteString(second, "GET / HTTP/1.1\r\nHost: x\r\n"+head)
	if !ended(second) {
		t.Error("a second large head is read")
	}
	if got := f.reasons(); got != "heads" {
		t.Errorf("refused: %q", got)
	}
	if err := get(f.dial(t), "/"); err != nil {
		t.Errorf("a small one: %v", err)
	}
	close(f.release)
	if _, err := http.ReadResponse(bufio.NewReader(first), nil); err != nil {
		t.Fatal(err)
	}
	third := f.dial(t)
	body := strings.Repeat("b", 1<<20)
	if _, err := fmt.Fprintf(third, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n%s\r\n%s", len(body), head, body); err != nil {
		t.Fatal(err)
	}
	if _, err := http.ReadResponse(bufio.NewReader(third), nil); err != nil {
		t.Errorf("after the first has ended: %v", err)
	}
}

// Heads that are not complete make room for one that is sent at once, whichever is larger; a request that is served keeps its own.
func TestHeadsMakeRoom(t *testing.T) {
	t.Parallel()
	for _, size := range []int{20, 60} { // KB
		t.Run(fmt.Sprintf("%d KB", size), func(t *testing.T) {
			t.Parallel()
			const bound = 400 << 10
			f := serve(t, "unix", Options{Heads: bound})
			lines := func(n int) string { return strings.Repeat("A: "+strings.Repeat("a", 994)+"\r\n", n) }
			served := f.dial(t)
			if _, err := io.WriteString(served, "GET /wait HTTP/1.1\r\nHost: x\r\n"+lines(60)+"\r\n"); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the request has not begun", func() bool { return len(f.Open()) == 1 && f.Open()[0].active.Load() == 1 })
			var halves []net.Conn
			for f.held.Load()+int64(size)<<10 <= bound {
				half, before := f.dial(t), f.held.Load()
				if _, err := io.WriteString(half, "GET / HTTP/1.1\r\nHost: x\r\n"+lines(size)); err != nil {
					t.Fatal(err)
				}
				eventually(t, "half a head does not count", func() bool { return f.held.Load() >= before+int64(size-9)*1000 })
				halves = append(halves, half)
			}
			for range 20 {
				c := f.dial(t)
				if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n"+lines(70)+"\r\n"); err != nil { // more than there is room for
					t.Fatal(err)
				}
				if resp, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil || resp.StatusCode != http.StatusOK {
					t.Fatalf("a head that is sent at once: %v", err)
				}
			}
			if !ended(halves[0]) {
				t.Error("the first of the half heads stays open")
			}
			close(f.release)
			if _, err := http.ReadResponse(bufio.NewReader(served), nil); err != nil {
				t.Errorf("the request that was served meanwhile: %v", err)
			}
			for _, c := range f.Open() {
				c.Close()
			}
			eventually(t, "what heads held is not given back", func() bool { return f.held.Load() == 0 })
		})
	}
}

// A connection is closed for want of room, or serves its request: never both.
func TestBeginOrClaim(t *testing.T) {
	t.Parallel()
	for range 1000 {
		c := &Conn{l: &Listener{}}
		var began, claimed bool
		var both sync.WaitGroup
		both.Go(func() { _, began = c.Begin(&http.Request{}) })
		both.Go(func() { claimed = c.claim() })
		both.Wait()
		if began == claimed {
			t.Fatalf("a request has begun: %t; the connection is being closed: %t", began, claimed)
		}
	}
}

// Where descriptors are scarce, connections without requests make room for new ones; those with requests stay.
func TestScarceDescriptors(t *testing.T) {
	t.Parallel()
	f := serve(t, "tcp", Options{Share: 100})
	busy := f.dial(t)
	if _, err := io.WriteString(busy, "GET /wait HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the request has not begun", func() bool { return len(f.Open()) == 1 && f.Open()[0].active.Load() == 1 })
	idle := f.dial(t)
	eventually(t, "not accepted", func() bool { return len(f.Open()) == 2 })
	if f.From(idle.LocalAddr().String()) == nil {
		t.Error("a connection is not found by its address")
	}

	f.limit.Store(1) // all that are new are beyond
	fresh := f.dial(t)
	if !ended(idle) {
		t.Error("an idle connection stays open")
	}
	if err := get(fresh, "/"); err != nil {
		t.Errorf("a new connection: %v", err)
	}
	again := f.dial(t)
	if !ended(fresh) || get(again, "/") != nil {
		t.Error("the one that has had no request for the longest time stays")
	}
	if _, err := io.WriteString(again, "GET /wait HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the second request has not begun", func() bool {
		n := int64(0)
		for _, c := range f.Open() {
			n += c.active.Load()
		}
		return n == 2
	})
	if !ended(f.dial(t)) {
		t.Error("a connection is accepted where there is no room for it")
	}
	if got := f.reasons(); got != "descriptors" {
		t.Errorf("refused: %q", got)
	}
	close(f.release)
	if _, err := http.ReadResponse(bufio.NewReader(busy), nil); err != nil {
		t.Errorf("the request of the first connection: %v", err)
	}
}

func TestCheckMade(t *testing.T) {
	t.Parallel()
	f := serve(t, "unix", Options{})
	c := f.dial(t)
	if err := CheckMade(c, 100); err != nil {
		t.Error(err)
	}
	if !beyond(c, 1, 95) || beyond(c, maxDescriptors, 1) || beyond(c, 0, 95) {
		t.Error("a descriptor is beyond what it is not")
	}
}
