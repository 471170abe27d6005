package front_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/catena-dev/catena/host/internal/front"
)

func TestShutdownServesWhatIsInFlight(t *testing.T) {
	t.Parallel()
	entered, finish := make(chan struct{}), make(chan struct{})
	s := newServer(t, open(t))
	s.SetChain(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(entered)
		<-finish
		w.WriteHeader(http.StatusTeapot)
	}))
	var hooks atomic.Int32
	servedDuringHook := make(chan response, 1)
	admin := s.admin(t)
	s.AddPreShutdownHook(func() error {
		hooks.Add(1)
		a := admin.get(t, "/readyz?verbose")
		// The hooks begin at the same time as the shutdown.
		for end := time.Now().Add(deadline); a.code == http.StatusOK && time.Now().Before(end); {
			a = admin.get(t, "/readyz?verbose")
		}
		servedDuringHook <- a
		return nil
	})
	s.AddPreShutdownHook(func() error { hooks.Add(1); return errTest })
	s.run(t)
	s.waitReady(t)

	got := make(chan response, 1)
	go func() { got <- s.admin(t).get(t, "/api/v1/pods") }()
	<-entered
	select {
	case <-s.Draining():
		t.Error("draining while it serves")
	default:
	}
	s.stop()
	if a := <-servedDuringHook; a.code == http.StatusOK || !strings.Contains(a.body, "[-]shutdown failed") {
		t.Errorf("readiness during the shutdown: %d %s", a.code, a.body)
	}
	<-s.Draining()
	select {
	case err := <-s.ended:
		t.Errorf("Run returned %v with a request in flight", err)
	default:
	}
	close(finish)
	if a := <-got; a.code != http.StatusTeapot {
		t.Errorf("request in flight: %d %s", a.code, a.body)
	}
	if err := <-s.ended; !errors.Is(err, errTest) || err.Error() != errTest.Error() {
		t.Errorf("Run returned %v, want the error of the hook", err)
	}
	if hooks.Load() != 2 {
		t.Errorf("%d hooks ran", hooks.Load())
	}
	if a := s.client(t).get(t, "/livez"); a.code != 0 {
		t.Errorf("after the end: %d", a.code)
	}
}

// A client that connects while the server shuts down, and then makes no request,
// gets no notice from net/http, which waits for it.
func TestShutdownDoesNotWaitForIdleConnections(t *testing.T) {
	t.Parallel()
	s := newServer(t, open(t))
	dial := func() net.Conn {
		conn, err := net.Dial("tcp", s.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	var late net.Conn
	s.AddPreShutdownHook(func() error {
		late = dial()
		// The server accepts connections in their order: when the next has got its response,
		// this one is not lost with the listener.
		if a := s.client(t).get(t, "/livez"); a.code == 0 {
			t.Errorf("during the hook: %s", a.body)
		}
		return nil
	})
	s.run(t)
	s.waitReady(t)
	s.stop()
	<-s.Draining()
	// The handshake ends when the server has asked clients to close: then the
	// listener is closed.
	eventually(t, "closed listener", func() bool {
		conn, err := net.Dial("tcp", s.Addr().String())
		if err == nil {
			_ = conn.Close()
		}
		return err != nil
	})
	if err := tls.Client(late, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}).Handshake(); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-s.ended:
		if err != nil {
			t.Errorf("Run returned %v", err)
		}
	case <-time.After(deadline):
		t.Error("Run waits for a connection without a request")
	}
}

func TestPostStartHooks(t *testing.T) {
	t.Parallel()
	s := newServer(t, open(t))
	release := make(chan struct{})
	if err := s.AddPostStartHook("slow", func(context.Context) error { <-release; return nil }); err != nil {
		t.Fatal(err)
	}
	s.run(t)
	admin := s.admin(t)
	eventually(t, "response", func() bool {
		return strings.Contains(admin.get(t, "/readyz?verbose").body, "[-]poststarthook/slow failed")
	})
	close(release)
	s.waitReady(t)
}

func TestAHookThatFailsEndsTheServer(t *testing.T) {
	t.Parallel()
	s := newServer(t, open(t))
	if err := s.AddPostStartHook("bad", func(context.Context) error { return errTest }); err != nil {
		t.Fatal(err)
	}
	s.run(t)
	if err := <-s.ended; !errors.Is(err, errTest) || !strings.Contains(err.Error(), `post-start hook "bad"`) {
		t.Errorf("Run returned %v", err)
	}
}

func TestAFailureBeforeRunIsNotLost(t *testing.T) {
	t.Parallel()
	s := newServer(t, open(t))
	s.Fail(errTest)
	s.run(t)
	if err := <-s.ended; !errors.Is(err, errTest) {
		t.Errorf("Run returned %v", err)
	}
}

func TestPing(t *testing.T) {
	t.Parallel()
	s := start(t, flagValues{}, func(http.ResponseWriter, *http.Request) { t.Error("a stage was asked") })
	if err := s.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	s.stop()
	<-s.ended
	if s.Ping(t.Context()) == nil {
		t.Error("a server that has ended responds")
	}
}

// Requests that wait for a server to be ready do not hold up its end: another program may wait for that.
func TestHeldRequestsEndWithTheServer(t *testing.T) {
	t.Parallel()
	s := newServerWith(t, open(t), func(o *front.Options) { o.HoldUntilReady = true })
	s.SetChain(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("a request was served by a server that is not ready")
	}))
	release := make(chan struct{})
	defer close(release)
	if err := s.AddPostStartHook("slow", func(context.Context) error { <-release; return nil }); err != nil {
		t.Fatal(err)
	}
	s.run(t)
	admin := s.admin(t)
	eventually(t, "health is not held", func() bool {
		return strings.Contains(admin.get(t, "/readyz?verbose").body, "[-]poststarthook/slow failed")
	})
	held := make(chan response, 1)
	var failed atomic.Bool
	go func() {
		a := s.admin(t).get(t, "/api/v1/pods")
		if !failed.Load() {
			t.Errorf("not held: %d %s", a.code, a.body)
		}
		held <- a
	}()
	for range 20 { // which are not held
		admin.get(t, "/readyz")
	}
	failed.Store(true)
	s.Fail(errTest)
	if a := <-held; a.code != http.StatusServiceUnavailable || !strings.Contains(a.body, "starting") {
		t.Errorf("%d %s", a.code, a.body)
	}
}

// A server that has been ready, after it held requests, responds to them while it ends.
func TestServerThatHeldRequestsEnds(t *testing.T) {
	t.Parallel()
	flags := open(t)
	flags["shutdown-delay-duration"] = []string{"3s"}
	s := newServerWith(t, flags, func(o *front.Options) { o.HoldUntilReady = true })
	s.SetChain(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	s.run(t)
	admin := s.admin(t)
	eventually(t, "it serves", func() bool { return admin.get(t, "/api/v1/pods").code == http.StatusNoContent })
	s.stop()
	eventually(t, "it ends", func() bool { return admin.get(t, "/readyz").code != http.StatusOK })
	for range 20 { // a choice at random would be seen
		if a := admin.get(t, "/api/v1/pods"); a.code != http.StatusNoContent {
			t.Fatalf("%d %s", a.code, a.body)
		}
	}
}
