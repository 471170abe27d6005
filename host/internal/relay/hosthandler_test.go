package relay

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/catena-dev/catena/sdk/stagev1"
)

type userKey struct{}

// userPropagator sends stages the user in the context.
type userPropagator struct{}

func (userPropagator) AppendRequestHeaders(dst []byte, r *http.Request) []byte {
	return fmt.Appendf(dst, "%s: %v\r\n", stagev1.HeaderUser, r.Context().Value(userKey{}))
}
func (userPropagator) HostHeader(string) bool                               { return false }
func (userPropagator) ResponseHeader(*http.Request, string, string, string) {}

func withUser(r *http.Request, user string) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), userKey{}, user))
}

// host is a chain with its host socket and a server that knows who the user is.
type host struct {
	*httptest.Server
	chain  *Chain
	socket string
}

// newHost starts a host; the token of each stage is TOKEN-STAGE.
func newHost(t testing.TB, stages ...string) *host {
	chain := newChain(t, Config{Propagator: userPropagator{}}, stages...)
	delegates := map[string][]string{"a": {"b", "c", "coming"}, "b": {"c"}}
	h := &host{chain: chain}
	h.socket = serveStage(t, &HostHandler{
		Chain: chain,
		Caller: func(token string) (Caller, bool) {
			stage, ok := strings.CutPrefix(token, "token-")
			return Caller{Stage: stage, Delegates: delegates[stage]}, ok
		},
		API: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, "API for %v: %s %v", r.Context().Value(userKey{}), r.URL.Path, r.Header)
		}),
		As: func(r *http.Request, caller Caller) *http.Request { return withUser(r, "stage "+caller.Stage) },
	})
	h.Server = serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		chain.ServeHTTP(w, withUser(r, "alice"))
	}))
	return h
}

// call sends a request to the host socket.
func (h *host) call(ctx context.Context, token, key, value, path string, body io.Reader) (*http.Response, error) {
	client := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", h.socket)
	}}
	req, err := http.NewRequestWithContext(ctx, "POST", "http://host"+path, body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("X-Remote-User", "forged")
	if key != "" {
		req.Header.Set(key, value)
	}
	return client.RoundTrip(req)
}

// TestHostHandler shows what each kind of call reaches, and as whom.
func TestHostHandler(t *testing.T) {
	t.Parallel()
	var h *host
	describe := func(name string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			fmt.Fprintf(w, "%s: %s %s for %s, %s, remote=%q auth=%q", name, r.Method, r.URL.Path, r.Header.Get(stagev1.HeaderUser), body,
				r.Header.Get("X-Remote-User"), r.Header.Get("Authorization"))
		})
	}
	// Stage a calls the host as the request asks, with the id of that request.
	a := serveStage(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key, value := r.FormValue("key"), r.FormValue("value")
		if value == "" {
			value = r.Header.Get(stagev1.HeaderRequest)
		}
		resp, err := h.call(r.Context(), r.FormValue("token"), key, value, "/changed", strings.NewReader("new body"))
		if err != nil {
			t.Error(err)
			return
		}
		defer resp.Body.Close()
		w.WriteHeader(resp.StatusCode)
		io.Copy(w, resp.Body)
	}))
	h = newHost(t, a, serveStage(t, describe("b")), serveStage(t, describe("c")))
	for _, tc := range []struct {
		name, query string
		status      int
		want        string
	}{
		{"next", "token=token-a&key=X-Catena-Next", 200, `b: POST /changed for alice, new body, remote="" auth=""`},
		{"next with another's request", "token=token-b&key=X-Catena-Next", 409, "in flight"},
		{"next with an id that is none", "token=token-a&key=X-Catena-Next&value=x", 409, "in flight"},
		{"next with an old id", "token=token-a&key=X-Catena-Next&value=1", 409, "in flight"},
		{"delegate", "token=token-a&key=X-Catena-Delegate&value=c", 200, `c: POST /changed for stage a, new body, remote="" auth=""`},
		{"itself as delegate", "token=token-a&key=X-Catena-Delegate&value=a", 404, "not downstream"},
		{"delegate upstream", "token=token-b&key=X-Catena-Delegate&value=a", 404, "not downstream"},
		{"delegate that does not serve yet", "token=token-a&key=X-Catena-Delegate&value=coming", 503, "not in the chain"},
		{"unknown delegate", "token=token-a&key=X-Catena-Delegate&value=x", 404, "not downstream"},
		{"delegate of an unknown stage", "token=token-x&key=X-Catena-Delegate&value=c", 404, "not downstream"},
		{"API", "token=token-a", 200, "API for stage a: /changed"},
		{"no token", "", 401, "token"},
		{"wrong token", "token=x&key=X-Catena-Next", 401, "token"},
	} {
		resp, body := fetch(t, h.Server, "GET", "/first?"+tc.query, nil)
		if resp.StatusCode != tc.status || !strings.Contains(body, tc.want) || strings.Contains(body, "forged") {
			t.Errorf("%s: %d %s", tc.name, resp.StatusCode, body)
		}
	}
}

// TestNextEnds shows that a request which is handed on ends with the original and
// with the call.
func TestNextEnds(t *testing.T) {
	t.Parallel()
	for _, first := range []string{"original", "call"} {
		t.Run(first, func(t *testing.T) {
			t.Parallel()
			var h *host
			inB, seenByB, seenByA := make(chan struct{}), make(chan struct{}), make(chan error, 1)
			endCall := make(chan struct{})
			a := serveStage(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				go func() { <-endCall; cancel() }()
				resp, err := h.call(ctx, "token-a", stagev1.HeaderNext, r.Header.Get(stagev1.HeaderRequest), "/", nil)
				if err == nil {
					_, err = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
				seenByA <- err
			}))
			b := serveStage(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				io.WriteString(w, "part")
				w.(http.Flusher).Flush()
				close(inB)
				<-r.Context().Done()
				close(seenByB)
			}))
			h = newHost(t, a, b)
			ctx, leave := context.WithCancel(t.Context())
			go func() {
				req, _ := http.NewRequestWithContext(ctx, "GET", h.URL, nil)
				if resp, err := h.Client().Do(req); err == nil {
					resp.Body.Close()
				}
			}()
			within(t, "the request to be with b", inB)
			if first == "original" {
				leave()
			} else {
				close(endCall)
			}
			within(t, "b to see the end", seenByB)
			if err := within(t, "a to see the end", seenByA); err == nil {
				t.Error("a takes a part of b's response for the whole")
			}
			leave()
			if first == "original" {
				close(endCall)
			}
		})
	}
}

// TestNextUpgrades hands on an upgrade through the host.
func TestNextUpgrades(t *testing.T) {
	t.Parallel()
	var h *host
	a := scriptStage(t, func(_ int, c *net.UnixConn, r *bufio.Reader) {
		req, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		up, err := net.Dial("unix", h.socket)
		if err != nil {
			t.Error(err)
			return
		}
		defer up.Close()
		lines := "\r\nAuthorization: Bearer token-a\r\nX-Catena-Next: " + req.Header.Get(stagev1.HeaderRequest) + "\r\n\r\n"
		io.WriteString(up, strings.TrimSuffix(upgradeRequest, "\r\n\r\n")+lines)
		go io.Copy(up, r)
		io.Copy(c, up)
	})
	b := upgradeStage(t, func(c *net.UnixConn, r *bufio.Reader) {
		io.WriteString(c, switching)
		io.WriteString(c, "b got "+readLine(t, r)+"\n")
	})
	h = newHost(t, a, b)
	c, r := dialUpgrade(t, h.Server, "")
	want101(t, r)
	io.WriteString(c, "hello\n")
	if got := readLine(t, r); got != "b got hello" {
		t.Error(got)
	}
}

// TestInFlight shows who can use an id, and when.
func TestInFlight(t *testing.T) {
	var f inFlight
	r := httptest.NewRequest("GET", "/", nil)
	id := f.newID()
	if other := f.newID(); other == id {
		t.Error("an id twice")
	}
	var called atomic.Bool
	lookup := func(stage string) error {
		was := called.Load()
		if got, ok := f.call(id, stage); ok && got.r == r && called.Load() {
			return nil
		}
		if called.Load() != was {
			t.Errorf("stage %q has not called, and is marked", stage)
		}
		return errors.New("not found")
	}
	if lookup("") == nil || lookup("a") == nil {
		t.Error("found before a stage had it")
	}
	f.set(id, inFlightRequest{stage: "a", r: r, called: &called})
	if lookup("a") != nil || lookup("b") == nil {
		t.Error("with a, it is not a's alone")
	}
	f.set(id, inFlightRequest{stage: "b", r: r, called: &called})
	if called.Load() {
		t.Error("b is marked for the call of a")
	}
	if lookup("b") != nil || lookup("a") == nil {
		t.Error("with b, it is not b's alone")
	}
	f.remove(id)
	if lookup("b") == nil {
		t.Error("found after its end")
	}
	if n := testing.AllocsPerRun(100, func() { f.set(id, inFlightRequest{stage: "a", r: r, called: &called}); f.remove(id) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
