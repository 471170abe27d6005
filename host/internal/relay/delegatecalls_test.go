package relay

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
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
		for refused.Load() == 0 {
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
				n := 0
				for time.Since(begun) < seconds*time.Second {
					if ask(s, size, 0) == "" {
						n++
					}
				}
				if got, want := n*max(size, bounds.CallCost), bounds.CallBurst+seconds*bounds.CallRate; got < want*9/10 || got > want*11/10 {
					t.Errorf("%d requests are %d bytes, want %d", n, got, want)
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
	responses := make(chan *http.Response, 2*most)
	call := func(token, delegate, path string) {
		resp, err := h.send(t.Context(), "GET", token, stagev1.HeaderDelegate, delegate, path, nil)
		if err != nil {
			t.Error(err)
			resp = &http.Response{Body: http.NoBody}
		}
		responses <- resp
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	defer close(release)
	for range most + 1 {
		wg.Go(func() { call("token-a-ungranted", "b", "/openapi/v2") })
	}
	resp := <-responses
	body, _ := io.ReadAll(resp.Body)
	if want := "stage \"a\" makes too many requests for discovery and OpenAPI of its delegates\n"; resp.StatusCode != 429 || resp.Header.Get("Retry-After") == "" || string(body) != want {
		t.Errorf("one request more: %d %v %s", resp.StatusCode, resp.Header, body)
	}
	if limit := <-h.limited; limit != "a delegateCalls" {
		t.Errorf("limited is %s", limit)
	}
	for token, delegate := range map[string]string{"token-b-ungranted": "c", "token-a-trusted": "b"} {
		call(token, delegate, "/apis")
		for resp = <-responses; resp.StatusCode == 429; resp = <-responses { // those that have waited too long
		}
		if resp.StatusCode != 200 {
			t.Errorf("%s: %d", token, resp.StatusCode)
		}
	}
}
