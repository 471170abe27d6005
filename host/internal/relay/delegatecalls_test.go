package relay

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/catena-dev/catena/host/internal/bounds"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// discard is a response that only counts.
type discard struct {
	http.ResponseWriter
	n int
}

func (d *discard) Write(b []byte) (int, error) {
	d.n += len(b)
	return len(b), nil
}

var mebibyte = make([]byte, 1<<20)

// ask makes a request that is served with so many bytes, a number of MiB, after some time, and returns Retry-After of one that is not served.
func ask(s *stageCalls, size int, after time.Duration) (retryAfter string) {
	w := &discard{ResponseWriter: httptest.NewRecorder()}
	served := s.serve(w, httptest.NewRequest("GET", "/apis", nil), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(after)
		for range size >> 20 {
			_, _ = w.Write(mebibyte)
		}
	}))
	if served {
		return ""
	}
	return w.Header().Get("Retry-After")
}

// A stage has so many requests served at a time. Others wait for that, and no longer than CallWait.
func TestDelegateCallsAtATime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStageCalls()
		var wg sync.WaitGroup
		var refused atomic.Int32
		at := func(after time.Duration) { // a request that takes as long
			wg.Go(func() {
				if ask(s, 0, after) != "" {
					refused.Add(1)
				}
			})
			synctest.Wait()
		}
		for range bounds.DelegateCalls {
			at(bounds.CallWait - time.Second)
		}
		for range bounds.DelegateCalls {
			at(2 * bounds.CallWait) // they are served in time
		}
		wait := time.Now()
		at(0)
		for refused.Load() == 0 && time.Since(wait) < 2*bounds.CallWait {
			time.Sleep(time.Millisecond)
			synctest.Wait()
		}
		if d := time.Since(wait); d < bounds.CallWait || d > bounds.CallWait+time.Second {
			t.Errorf("refused after %s", d)
		}
		wg.Wait()
		if n := refused.Load(); n != 1 {
			t.Errorf("%d requests are refused, want 1", n)
		}
	})
}

// The requests of a stage have a rate of bytes, and those that take little one of requests.
func TestDelegateCallsRate(t *testing.T) {
	t.Parallel()
	for name, size := range map[string]int{"large": 8 << 20, "small": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s, begun := newStageCalls(), time.Now()
				const seconds = 8
				got, want := 0, bounds.CallBurst+seconds*bounds.CallRate
				for time.Since(begun) < seconds*time.Second && got < 2*want {
					if ask(s, size, 0) == "" {
						got += max(size, bounds.CallCost)
					}
				}
				if got < want*9/10 || got > want*11/10 {
					t.Errorf("%d bytes in %s, want %d", got, time.Since(begun), want)
				}
			})
		})
	}
	t.Run("retry after", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newStageCalls()
			for range 2 {
				go ask(s, bounds.CallBurst, time.Second)
			}
			time.Sleep(time.Second)
			synctest.Wait()
			if got, want := ask(s, 0, 0), strconv.Itoa(bounds.CallBurst/bounds.CallRate); got != want {
				t.Errorf("Retry-After is %q, want %q", got, want)
			}
			time.Sleep(bounds.CallBurst / bounds.CallRate * time.Second)
			if got := ask(s, 0, 0); got != "" {
				t.Errorf("Retry-After is %q after that time", got)
			}
		})
	})
}

// A stage that asks its delegates for too much is refused by name, and no other is. A trusted one is not.
func TestDelegateCallsOfStages(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	slow := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/openapi/v2" {
			<-release
		}
	})
	h := newHost(t, serveStage(t, http.HandlerFunc(declines)), serveStage(t, slow), serveStage(t, slow))
	const most = bounds.DelegateCalls + bounds.WaitingCalls
	responses := make(chan *http.Response, most+1)
	call := func(token, delegate, path string) *http.Response {
		resp, err := h.send(t.Context(), "GET", token, stagev1.HeaderDelegate, delegate, path, nil)
		if err != nil {
			t.Error(err)
			resp = &http.Response{Body: http.NoBody}
		}
		return resp
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	defer close(release)
	for range most + 1 {
		wg.Go(func() { responses <- call("token-a-ungranted", "b", "/openapi/v2") })
	}
	var resp *http.Response
	select {
	case resp = <-responses:
	case <-time.After(30 * time.Second):
		t.Fatal("all are served")
	}
	body, _ := io.ReadAll(resp.Body)
	if want := "stage \"a\" makes too many requests for discovery and OpenAPI of its delegates\n"; resp.StatusCode != 429 || resp.Header.Get("Retry-After") == "" || string(body) != want {
		t.Errorf("one request more: %d %v %s", resp.StatusCode, resp.Header, body)
	}
	if limit := <-h.limited; limit != "a delegateCalls" {
		t.Errorf("limited is %s", limit)
	}
	for token, delegate := range map[string]string{"token-b-ungranted": "c", "token-a-trusted": "b"} {
		if resp := call(token, delegate, "/apis"); resp.StatusCode != 200 {
			t.Errorf("%s: %d", token, resp.StatusCode)
		}
	}
}

// A stage has so many requests in its own name served at a time, and so many watches besides; it takes nothing of other stages.
func TestOwnCallsAtATime(t *testing.T) {
	t.Parallel()
	h := newHost(t, serveStage(t, http.HandlerFunc(declines)))
	release, held := make(chan struct{}), atomic.Int32{}
	h.held = func() {
		held.Add(1)
		<-release
	}
	get := func(token, path string) (int, string) {
		resp, err := h.send(t.Context(), http.MethodGet, token, "", "", path, nil)
		if err != nil {
			t.Error(err)
			return 0, ""
		}
		defer resp.Body.Close()
		_, _ = io.Copy(io.Discard, resp.Body)
		return resp.StatusCode, resp.Header.Get("Retry-After")
	}
	var all sync.WaitGroup
	for i := range bounds.OwnCalls + bounds.OwnStreams {
		path := "/held"
		if i >= bounds.OwnCalls {
			path += "?watch=true"
		}
		all.Go(func() {
			if code, after := get("token-a", path); code != http.StatusOK || after != "" {
				t.Errorf("one of so many: %d, Retry-After %q", code, after)
			}
		})
	}
	eventually(t, "all of so many are served", func() bool { return held.Load() == bounds.OwnCalls+bounds.OwnStreams })
	for _, tc := range []struct {
		token, path string
		want        int
	}{{"token-a", "/x?watch=true", 429}, {"token-b", "/x", 200}, {"token-a-trusted", "/x", 200}, {"token-a", "/x", 429}} {
		if code, after := get(tc.token, tc.path); code != tc.want || (after == "") == (code == 429) {
			t.Errorf("%s with %s: %d, Retry-After %q, want %d", tc.path, tc.token, code, after, tc.want)
		}
	}
	if got := within(t, "the limit", h.limited); got != "a "+LimitOwn {
		t.Errorf("limited: %s", got)
	}
	close(release)
	all.Wait()
	if code, _ := get("token-a", "/x"); code != http.StatusOK {
		t.Errorf("afterwards: %d", code)
	}
}

// A request that comes back to the stage which has made it, and that it makes again to serve it, is refused with its way. One that the stage serves
// itself, or hands on, is not, and neither is one of which it does not say why it is made, or that others have made.
func TestOwnRequestComesBack(t *testing.T) {
	t.Parallel()
	var h *host
	// asks serves by requests in the stage's own name to the path behind "/chain/asks/", as often as there is one.
	asks := func(token string, says bool) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			key, path := "", r.URL.RequestURI()
			switch {
			case strings.HasPrefix(path, "/chain/own/"):
				w.WriteHeader(http.StatusOK)
				return
			case strings.HasPrefix(path, "/chain/n/"): // another path each time
				n, _ := strconv.Atoi(strings.TrimPrefix(path, "/chain/n/"))
				if path = "/chain/n/" + strconv.Itoa(n-1); n == 1 {
					path = "/chain/own/x"
				}
			case path == "/chain/once" && !strings.Contains(r.Header.Get(stagev1.HeaderUser), "alice"):
				return
			}
			if says {
				key = stagev1.HeaderCause
			}
			resp, err := h.send(r.Context(), http.MethodGet, token, key, r.Header.Get(stagev1.HeaderRequest), path, nil)
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			w.WriteHeader(resp.StatusCode)
			_, _ = io.Copy(w, resp.Body)
		})
	}
	h = newHost(t, serveStage(t, asks("token-a", true)))
	for _, tc := range []struct {
		path string
		want int
	}{{"/chain/loop?q=1", 508}, {"/chain/n/20", 200}, {"/chain/n/40", 200}, {"/chain/once", 200}, {"/chain/own/x", 200}} {
		resp, body := fetch(t, h.Server, http.MethodGet, tc.path, nil)
		if resp.StatusCode != tc.want {
			t.Errorf("%s: %d %s, want %d", tc.path, resp.StatusCode, body, tc.want)
		}
		if way := `stage "a" asks for GET /chain/loop?q=1, "a" asks for GET /chain/loop?q=1` + "\n"; tc.want == 508 && !strings.HasSuffix(body, way) {
			t.Errorf("the way is %q", body)
		}
	}
	if got := within(t, "the limit", h.limited); got != "a "+LimitLoop {
		t.Errorf("limited: %s", got)
	}

	h = newHost(t, serveStage(t, asks("token-a", false)))
	if resp, body := fetch(t, h.Server, http.MethodGet, "/chain/loop", nil); resp.StatusCode != 429 {
		t.Errorf("a stage that does not say so: %d %s", resp.StatusCode, body)
	}
	if got := within(t, "the limit", h.limited); got != "a "+LimitOwn {
		t.Errorf("limited: %s", got)
	}
}

// What led to a request is kept within bounds, however many requests there were, each the cause of the next and ended when that has come.
func TestCausesAreBounded(t *testing.T) { // not in parallel, since it measures the heap
	const many, size = 200, 512 << 10
	var h *host
	var sent sync.WaitGroup
	came := make([]chan struct{}, many+1)
	for i := range came {
		came[i] = make(chan struct{})
	}
	held := make(chan uint64, 1)
	h = newHost(t, serveStage(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n, err := strconv.Atoi(strings.TrimPrefix(r.URL.Path, "/chain/"))
		if err != nil {
			t.Error(err)
			return
		}
		close(came[n])
		if n == many {
			runtime.GC()
			var stats runtime.MemStats
			runtime.ReadMemStats(&stats)
			held <- stats.HeapAlloc
			return
		}
		id := r.Header.Get(stagev1.HeaderRequest)
		sent.Go(func() {
			path := "/chain/" + strconv.Itoa(n+1) + "?" + strings.Repeat(strconv.Itoa(n%10), size)
			resp, err := h.send(context.WithoutCancel(r.Context()), http.MethodGet, "token-a", stagev1.HeaderCause, id, path, nil)
			if err != nil {
				t.Error(err)
				return
			}
			_ = resp.Body.Close()
		})
		<-came[n+1]
	})))
	if resp, body := fetch(t, h.Server, http.MethodGet, "/chain/0", nil); resp.StatusCode != http.StatusOK {
		t.Fatalf("%d %s", resp.StatusCode, body)
	}
	select {
	case n := <-held:
		if n > many*size/2 {
			t.Errorf("%d MiB are held", n>>20)
		}
	case <-time.After(patience):
		t.Fatal("the last request has not come")
	}
	sent.Wait()
}
