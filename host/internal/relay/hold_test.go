package relay

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// held returns a chain of one stage that is being held, and the function that sets
// whether it is.
func held(t *testing.T, limits Limits) (*Chain, func(socket string, held bool)) {
	t.Helper()
	socket := serveStage(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }))
	chain := NewChain(Config{Hold: limits})
	set := func(s string, held bool) {
		if s == "same" {
			s = socket
		}
		chain.Set(Tables{All: order(1)}, []Stage{{Name: "a", Socket: s, Held: held}})
	}
	set("same", true)
	t.Cleanup(func() { chain.Set(Tables{All: order(0)}, nil) })
	return chain, set
}

// send makes n requests, and returns a function that waits for their statuses.
func send(chain *Chain, n int, body string) func() map[int]int {
	var mu sync.Mutex
	var all sync.WaitGroup
	statuses := map[int]int{}
	for range n {
		all.Go(func() {
			rec := httptest.NewRecorder()
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			chain.ServeHTTP(rec, httptest.NewRequestWithContext(ctx, "POST", "/", strings.NewReader(body)))
			mu.Lock()
			defer mu.Unlock()
			statuses[rec.Code]++
		})
	}
	return func() map[int]int {
		all.Wait()
		return statuses
	}
}

func waiting(chain *Chain) int { return chain.Loads()[0].Waiting }

// TestHold shows how requests wait for a stage, writes too, and what ends that.
func TestHold(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		end  func(set func(string, bool), other string)
		want int
	}{
		"another process on the same socket": {func(set func(string, bool), _ string) { set("same", false) }, http.StatusTeapot},
		"another process on its own socket":  {func(set func(string, bool), other string) { set(other, false) }, http.StatusOK},
		"it does not come back":              {func(set func(string, bool), _ string) { set("", false) }, http.StatusServiceUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			other := serveStage(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
			chain, set := held(t, Limits{})
			statuses := send(chain, 20, "x")
			eventually(t, "20 requests to wait", func() bool { return waiting(chain) == 20 })
			set("same", true) // what is published again in the meantime changes nothing
			if n := waiting(chain); n != 20 {
				t.Errorf("%d wait", n)
			}
			tc.end(set, other)
			if got := statuses(); got[tc.want] != 20 {
				t.Errorf("statuses %v, want 20 times %d", got, tc.want)
			}
			eventually(t, "the queue is empty", func() bool { return waiting(chain) == 0 })
		})
	}
}

// TestHoldIsBounded shows that what is beyond the limits is refused at once, with leave
// to try again.
func TestHoldIsBounded(t *testing.T) {
	t.Parallel()
	for name, limits := range map[string]Limits{
		"requests": {Requests: 5},
		"bytes":    {Bytes: 6000},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			chain, set := held(t, limits)
			body := strings.Repeat("x", 1000)
			statuses := send(chain, 5, body)
			eventually(t, "5 requests to wait", func() bool { return waiting(chain) == 5 })
			rec := httptest.NewRecorder()
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			chain.ServeHTTP(rec, httptest.NewRequestWithContext(ctx, "POST", "/", strings.NewReader(body)))
			if rec.Code != http.StatusServiceUnavailable || rec.Header().Get("Retry-After") == "" {
				t.Errorf("beyond the limit: %d, Retry-After %q", rec.Code, rec.Header().Get("Retry-After"))
			}
			set("same", false)
			if got := statuses(); got[http.StatusTeapot] != 5 {
				t.Errorf("statuses %v", got)
			}
		})
	}
}

// TestHeldRequestEndsWithItsContext shows that a request waits no longer than its context.
func TestHeldRequestEndsWithItsContext(t *testing.T) {
	t.Parallel()
	chain, _ := held(t, Limits{})
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		chain.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil).WithContext(ctx))
	}()
	eventually(t, "it waits", func() bool { return waiting(chain) == 1 })
	cancel(errors.New("the client has gone"))
	<-done
	if n := waiting(chain); n != 0 {
		t.Errorf("%d wait", n)
	}
}

// TestHoldCanBeChanged shows that the bounds hold for the next request, and that those
// which wait already are let be.
func TestHoldCanBeChanged(t *testing.T) {
	t.Parallel()
	chain, set := held(t, Limits{Requests: 2})
	before := send(chain, 2, "x")
	eventually(t, "2 requests to wait", func() bool { return waiting(chain) == 2 })
	chain.SetHold(Limits{Requests: 1})
	if got := send(chain, 1, "x")(); got[http.StatusServiceUnavailable] != 1 {
		t.Errorf("beyond the new bound: %v", got)
	}
	chain.SetHold(Limits{Requests: 3})
	after := send(chain, 1, "x")
	eventually(t, "3 requests to wait", func() bool { return waiting(chain) == 3 })
	set("same", false)
	if got := before(); got[http.StatusTeapot] != 2 {
		t.Errorf("those that waited: %v", got)
	}
	if got := after(); got[http.StatusTeapot] != 1 {
		t.Errorf("the last: %v", got)
	}
}

// TestHeldRequestMayMeetAnotherDeath shows that having waited does not use up the one
// time that a read may be sent again after it was lost. A write is lost then.
func TestHeldRequestMayMeetAnotherDeath(t *testing.T) {
	t.Parallel()
	for method, want := range map[string]int{"GET": http.StatusOK, "POST": http.StatusBadGateway} {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			var had atomic.Int64
			dying := serveStage(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				if had.Add(1) == 1 {
					panic(http.ErrAbortHandler)
				}
			}))
			chain, set := held(t, Limits{})
			done := make(chan int)
			go func() {
				rec := httptest.NewRecorder()
				chain.ServeHTTP(rec, httptest.NewRequest(method, "/", nil))
				done <- rec.Code
			}()
			eventually(t, "it waits", func() bool { return waiting(chain) == 1 })
			set(dying, false)
			if code := <-done; code != want {
				t.Errorf("%d, want %d", code, want)
			}
		})
	}
}

// TestOneUserCannotHaveAllRoomOfTheHold fills the room of those that wait with the requests of
// one user: half of it is left for the others.
func TestOneUserCannotHaveAllRoomOfTheHold(t *testing.T) {
	t.Parallel()
	e := newEndpoint("a", "", Limits{Requests: 4, Bytes: 1000})
	e.user = func(r *http.Request) string { return r.Header.Get("User") }
	for i, step := range []struct {
		user  string
		size  int
		leave bool
		want  error
	}{
		{user: "greedy", size: 10},
		{user: "greedy", size: 10},
		{user: "greedy", size: 10, want: errUserFull},
		{user: "modest", size: 10},
		{user: "modest", size: 600, want: errUserFull},
		{user: "greedy", size: 10, leave: true},
		{user: "greedy", size: 10},
		{user: "modest", size: 10},
		{user: "third", size: 10, want: errFull},
		{user: "greedy", size: 10, leave: true},
		{user: "third", size: 900},
	} {
		if step.leave {
			e.leave(step.user, step.size)
			continue
		}
		if _, err := e.enter(step.user, step.size); !errors.Is(err, step.want) || step.want == nil && err != nil {
			t.Errorf("step %d: got %v, want %v", i, err, step.want)
		}
	}
	for user, size := range map[string]int{"greedy": 10, "third": 900} {
		for range e.hold.users[user].requests {
			e.leave(user, size)
		}
	}
	e.leave("modest", 10)
	e.leave("modest", 10)
	if len(e.hold.users) != 0 || e.hold.requests != 0 || e.hold.bytes != 0 {
		t.Errorf("all have left, and %+v is left", e.hold)
	}
}

// TestLimitsOfTheHoldAreReported shows which limit has refused a request of whom.
func TestLimitsOfTheHoldAreReported(t *testing.T) {
	t.Parallel()
	socket := serveStage(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	reached := make(chan string, 1)
	chain := NewChain(Config{
		Hold:    Limits{Requests: 2},
		User:    func(r *http.Request) string { return r.Header.Get("User") },
		Limited: func(stage, limit, _ string) { reached <- stage + " " + limit },
	})
	chain.Set(Tables{All: order(1)}, []Stage{{Name: "a", Socket: socket, Held: true}})
	request := func(user string) *http.Request {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		r.Header.Set("User", user)
		return r
	}
	var waits sync.WaitGroup
	wait := func(user string, n int) {
		waits.Go(func() { chain.ServeHTTP(httptest.NewRecorder(), request(user)) })
		for deadline := time.Now().Add(time.Minute); chain.Loads()[0].Waiting != n; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("the request does not wait")
			}
		}
	}
	wait("greedy", 1)
	for _, c := range []struct{ user, want string }{{"greedy", "a " + LimitUser}, {"", "a " + LimitHold}} {
		if c.user == "" {
			wait("modest", 2)
		}
		rec := httptest.NewRecorder()
		chain.ServeHTTP(rec, request(c.user))
		if got := <-reached; got != c.want || rec.Code != http.StatusServiceUnavailable {
			t.Errorf("user %q: reached %q with status %d, want %q", c.user, got, rec.Code, c.want)
		}
	}
	chain.Set(Tables{All: order(1)}, []Stage{{Name: "a", Socket: socket}})
	waits.Wait()
}
