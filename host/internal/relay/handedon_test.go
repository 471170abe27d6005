package relay

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/catena-dev/catena/host/internal/bounds"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// Whatever a stage does with requests that write, with how many calls, beside each other or not, and whatever it
// responds: one that may not rewrite has each executed once at most, and one that may, once in the event of the
// request and once in each further event.
func TestHandedOnOnce(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 1))
		token, method := "token-a", []string{"POST", "PUT", "PATCH", "DELETE"}[random.IntN(4)]
		if random.IntN(2) == 0 {
			token += "-ungranted"
		}
		var h *host
		var executed, attempts atomic.Int64
		calls, beside, end := random.IntN(5), random.IntN(2) == 0, random.IntN(5)
		a := serveStage(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			attempts.Add(1)
			id := r.Header.Get(stagev1.HeaderRequest)
			call := func(n int) {
				resp, err := h.send(r.Context(), method, token, stagev1.HeaderNext, id, "/x", strings.NewReader(fmt.Sprint("object ", n)))
				if err != nil {
					return
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			}
			var all sync.WaitGroup
			for n := range calls {
				if beside {
					all.Go(func() { call(n) })
				} else {
					call(n)
				}
			}
			all.Wait()
			switch end {
			case 0:
				decline(w)
			case 1:
				w.WriteHeader(http.StatusNotFound)
			case 2:
				w.Header().Set(stagev1.HeaderUndelivered, "guessed")
				w.WriteHeader(http.StatusServiceUnavailable)
			case 3:
				_, _ = io.Copy(io.Discard, r.Body) // net/http would wait for it
				panic(http.ErrAbortHandler)
			}
		}))
		h = newHost(t, a, serveStage(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { executed.Add(1) })))
		resp, _ := fetch(t, h.Server, method, "/x", strings.NewReader("object"))
		events := 1 + h.again.Load()
		if executed.Load() > events {
			t.Errorf("seed %d, %s: %s is executed %d times, in %d events, of %d calls; it ends with %d", seed, token, method, executed.Load(), events, calls, end)
		}
		if strings.HasSuffix(token, "-ungranted") && events > 1 {
			t.Errorf("seed %d: %d events", seed, events)
		}
		if executed.Load() > 0 && resp.Header.Get("Retry-After") != "" || attempts.Load() > 1 {
			t.Errorf("seed %d: the request goes to the stage %d times, and the client is told to send it again: %q", seed, attempts.Load(), resp.Header["Retry-After"])
		}
		if calls == 0 && end == 0 && (executed.Load() != 1 || resp.StatusCode != http.StatusOK) {
			t.Errorf("seed %d: a decline is not what it was: %d", seed, resp.StatusCode)
		}
	}
}

// A call that is refused has written nothing: the request can be handed on, or declined, after it.
func TestRefusedCallWritesNothing(t *testing.T) {
	t.Parallel()
	for _, declines := range []bool{false, true} {
		var h *host
		a := serveStage(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			for _, path := range []string{"/changed", "/x"} {
				if declines && path == "/x" {
					decline(w)
					return
				}
				id := r.Header.Get(stagev1.HeaderRequest)
				resp, err := h.call(r.Context(), "token-a-ungranted", stagev1.HeaderNext, id, path, nil)
				if err != nil {
					t.Error(err)
					return
				}
				_ = resp.Body.Close()
				if want := map[string]int{"/changed": http.StatusForbidden, "/x": http.StatusOK}[path]; resp.StatusCode != want {
					t.Errorf("%s: %d, want %d", path, resp.StatusCode, want)
				}
			}
		}))
		h = newHost(t, a, serveStage(t, respondsWith("b")))
		if resp, body := fetch(t, h.Server, "POST", "/x", strings.NewReader("object")); resp.StatusCode != http.StatusOK {
			t.Errorf("declines %t: %d %s", declines, resp.StatusCode, body)
		}
	}
}

// The target of a request of a stage, which is in audit events, is no longer than a client's could be.
func TestTargetOfCall(t *testing.T) {
	t.Parallel()
	h := newHost(t, serveStage(t, respondsWith("a")))
	for length, want := range map[int]int{bounds.CallTarget - 100: http.StatusOK, bounds.CallTarget + 1: http.StatusRequestURITooLong} {
		resp, err := h.send(t.Context(), "GET", "token-a", "", "", "/"+strings.Repeat("x", length), nil)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%d bytes: %d, want %d", length, resp.StatusCode, want)
		}
	}
}
