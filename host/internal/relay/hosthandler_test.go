package relay

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
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
func (userPropagator) ResponseHeader(*http.Request, Sender, string, string) {}

func (userPropagator) HostResponseHeader(string) bool { return false }

func withUser(r *http.Request, user string) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), userKey{}, user))
}

// host is a chain with its host socket and a server that knows who the user is.
type host struct {
	*httptest.Server
	chain  *Chain
	socket string
	// initialized gets the path of each watch of which a stage says that its initial events are sent.
	initialized chan string
	// limited gets each stage with the limit that it has come to.
	limited chan string
	// held is called when the server is asked for /held.
	held func()
	// again counts the requests that are handed on after another one that has written.
	again atomic.Int64
	// other is the socket of the process with the token token-STAGE-other.
	other string
}

// newHost starts a host; the token of each stage is token-STAGE, token-STAGE-ungranted, token-STAGE-readonly or token-STAGE-trusted, and that of
// another process of it token-STAGE-other.
func newHost(t testing.TB, stages ...string) *host {
	limited := make(chan string, 1000)
	chain := newChain(t, Config{Propagator: userPropagator{}, Limited: func(stage, limit, _ string) { limited <- stage + " " + limit }}, stages...)
	delegates := map[string][]string{"a": {"b", "c", "coming"}, "b": {"c"}}
	h := &host{chain: chain, initialized: make(chan string, 10), limited: limited}
	h.socket = serveCalls(t, &HostHandler{
		Chain: chain,
		Caller: func(_ *http.Request, token string) (Caller, bool) {
			stage, ok := strings.CutPrefix(token, "token-")
			stage, refused := strings.CutSuffix(stage, "-ungranted")
			stage, readOnly := strings.CutSuffix(stage, "-readonly")
			stage, trusted := strings.CutSuffix(stage, "-trusted")
			stage, isOther := strings.CutSuffix(stage, "-other")
			granted, socket := !refused, h.other
			if i := strings.Index("abc", stage); !isOther && i >= 0 && i < len(stages) {
				socket = stages[i]
			}
			return Caller{Stage: stage, Socket: socket, Delegates: delegates[stage], MayRewrite: granted, MayDelegate: granted, Trusted: trusted, ReadOnly: readOnly}, ok
		},
		Authorize: func(w http.ResponseWriter, r *http.Request, stage string) (*http.Request, bool) {
			if strings.Contains(r.URL.Path, "secret") {
				http.Error(w, fmt.Sprintf("%v may not, says %s", r.Context().Value(userKey{}), stage), http.StatusForbidden)
				return nil, false
			}
			return r, true
		},
		Refuse: func(w http.ResponseWriter, _ *http.Request, refusal Refusal) {
			http.Error(w, refusal.Stage+" may not "+refusal.Reason+": "+refusal.Grant, http.StatusForbidden)
		},
		Again: func(w http.ResponseWriter, r *http.Request, _ string, serve http.HandlerFunc) {
			h.again.Add(1)
			serve(w, r)
		},
		Initialized: func(ctx context.Context) { h.initialized <- fmt.Sprint(ctx.Value(watchKey{})) },
		API: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if c := callFrom(r.Context()); c != nil && (c.delegate != "" || strings.HasPrefix(r.URL.Path, "/chain/")) {
				w.Header().Set("X-Filtered", "true")
				chain.ServeHTTP(w, r)
				return
			}
			if r.URL.Path == "/held" {
				h.held()
			}
			fmt.Fprintf(w, "API for %v: %s %v", r.Context().Value(userKey{}), r.URL.Path, r.Header)
		}),
		As: func(r *http.Request, caller Caller) *http.Request { return withUser(r, "stage "+caller.Stage) },
	})
	h.Server = serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		chain.ServeHTTP(w, withUser(r, "alice"))
	}))
	return h
}

// serveCalls serves what stages ask the host for, as the host does, and returns the socket.
func serveCalls(t testing.TB, handler http.Handler) string {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: handler, ErrorLog: log.New(io.Discard, "", 0)}
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(func() { _ = srv.Close() })
	return socket
}

// call sends a POST to the host socket.
func (h *host) call(ctx context.Context, token, key, value, path string, body io.Reader) (*http.Response, error) {
	return h.send(ctx, "POST", token, key, value, path, body)
}

func (h *host) send(ctx context.Context, method, token, key, value, path string, body io.Reader) (*http.Response, error) {
	client := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", h.socket)
	}}
	req, err := http.NewRequestWithContext(ctx, method, "http://host"+path, body)
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
		{"next with a request of another process of the stage", "token=token-a-other&key=X-Catena-Next", 409, "in flight to this process"},
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

// A stage can hand on a request as it came. One that it changes needs a grant, and what it has
// become is authorized.
func TestRewrite(t *testing.T) {
	t.Parallel()
	var h *host
	a := serveStage(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, method, to := r.Header.Get("Token"), r.Header.Get("Send-Method"), r.Header.Get("Send-To")
		resp, err := h.send(r.Context(), method, token, stagev1.HeaderNext, r.Header.Get(stagev1.HeaderRequest), to, nil)
		if err != nil {
			t.Error(err)
			return
		}
		defer resp.Body.Close()
		w.WriteHeader(resp.StatusCode)
		io.Copy(w, resp.Body)
	}))
	h = newHost(t, a, serveStage(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %s for %s", r.Method, r.RequestURI, r.Header.Get(stagev1.HeaderUser))
	})))
	const sent = "/a%2Fb/c?x=1&y"
	for _, tc := range []struct {
		method, to, token string
		status            int
		want              string
	}{
		{"GET", sent, "token-a-ungranted", 200, "GET " + sent + " for alice"},
		{"PUT", sent, "token-a-ungranted", 403, "a may not hand on a request with another method: rewrite"},
		{"GET", "/a/b/c?x=1&y", "token-a-ungranted", 403, "another path"},
		{"GET", "/a%2Fb/d?x=1&y", "token-a-ungranted", 403, "another path"},
		{"GET", "/a%2Fb/c?x=2&y", "token-a-ungranted", 403, "another query"},
		{"GET", "/a%2Fb/c", "token-a-ungranted", 403, "another query"},
		{"PUT", "/other?z", "token-a", 200, "PUT /other?z for alice"},
		{"GET", "/secret", "token-a", 403, "alice may not, says a"},
	} {
		req, err := http.NewRequest("GET", h.URL+sent, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header = http.Header{"Token": {tc.token}, "Send-Method": {tc.method}, "Send-To": {tc.to}}
		resp, err := h.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != tc.status || !strings.Contains(string(body), tc.want) {
			t.Errorf("%s %s with %s: %d %s, want %d %s", tc.method, tc.to, tc.token, resp.StatusCode, body, tc.status, tc.want)
		}
	}
}

// Without a grant, a stage gets discovery and OpenAPI of its delegates alone; with it, its
// calls pass the filters.
func TestDelegateGrant(t *testing.T) {
	t.Parallel()
	h := newHost(t, serveStage(t, respondsWith("a")), serveStage(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "b for %s", r.Header.Get(stagev1.HeaderUser))
	})))
	ask := func(method, path, token string) (*http.Response, string) {
		t.Helper()
		resp, err := h.send(t.Context(), method, token, stagev1.HeaderDelegate, "b", path, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp, string(body)
	}
	for _, path := range []string{"/api", "/api/v1", "/apis", "/apis/", "/apis/apps", "/apis/apps/v1", "/openapi/v2", "/openapi/v3/apis/apps/v1?hash=x"} {
		if resp, body := ask("GET", path, "token-a-ungranted"); resp.StatusCode != 200 || body != "b for stage a" || resp.Header.Get("X-Filtered") != "" {
			t.Errorf("%s: %d %s", path, resp.StatusCode, body)
		}
	}
	for _, request := range []string{
		"GET /api/v1/secrets", "GET /apis/apps/v1/deployments", "GET /", "GET /metrics", "GET /openapi/../api/v1/secrets", "GET /openapi//v2",
		"POST /apis", "DELETE /openapi/v2", "GET /apis/apps/v1/./deployments",
	} {
		method, path, _ := strings.Cut(request, " ")
		if resp, body := ask(method, path, "token-a-ungranted"); resp.StatusCode != 403 || !strings.Contains(body, "delegates") {
			t.Errorf("%s: %d %s", request, resp.StatusCode, body)
		}
		if resp, body := ask(method, path, "token-a"); resp.StatusCode != 200 || body != "b for stage a" || resp.Header.Get("X-Filtered") == "" {
			t.Errorf("%s with a grant: %d %s", request, resp.StatusCode, body)
		}
	}
}

// A stage can tell a request that another makes to it alone, also from what it hands on of that, and from one of a client
// that pretends to be such.
func TestDelegateHeader(t *testing.T) {
	t.Parallel()
	var h *host
	shows := func(name string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, "%s: %q ", name, r.Header[stagev1.HeaderDelegate])
		}
	}
	b := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		shows("b")(w, r)
		resp, err := h.send(r.Context(), "GET", "token-b", stagev1.HeaderNext, r.Header.Get(stagev1.HeaderRequest), r.RequestURI, nil)
		if err != nil {
			t.Error(err)
			return
		}
		defer resp.Body.Close()
		io.Copy(w, resp.Body)
	})
	h = newHost(t, serveStage(t, http.HandlerFunc(declines)), serveStage(t, b), serveStage(t, shows("c")))
	resp, err := h.send(t.Context(), "GET", "token-a", stagev1.HeaderDelegate, "b", "/apis", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, _ := io.ReadAll(resp.Body); string(body) != `b: ["b"] c: [] ` {
		t.Errorf("a call of b has %s", body)
	}
	req, err := http.NewRequest("GET", h.URL+"/apis", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set(stagev1.HeaderDelegate, "b")
	if resp, err = h.Client().Do(req); err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, _ := io.ReadAll(resp.Body); string(body) != `b: [] c: [] ` {
		t.Errorf("a client's request has %s", body)
	}
}

// Requests of the host itself go by a table of their own, also when a stage hands them on.
func TestSystemTable(t *testing.T) {
	t.Parallel()
	system := func(r *http.Request) bool { return r.Header.Get("System") != "" }
	chain := newChain(t, Config{System: system})
	stages := []Stage{{Name: "a", Socket: serveStage(t, respondsWith("a"))}, {Name: "b", Socket: serveStage(t, respondsWith("b"))}}
	chain.Set(Tables{All: order(2), System: from(1)}, stages)
	for header, want := range map[string]string{"System": "b", "Other": "a"} {
		req, err := http.NewRequest("GET", "http://host/x", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set(header, "yes")
		rec := httptest.NewRecorder()
		chain.ServeHTTP(rec, req)
		if rec.Body.String() != want {
			t.Errorf("%s: %s, want %s", header, rec.Body, want)
		}
	}
}

// from is a table of two stages in which those before the given one have no claims.
type from int

func (f from) First(string) int { return int(f) }

func (f from) Next(_ string, after int) int {
	if after < int(f) {
		return int(f)
	}
	return -1
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

// watchKey has the name of a watch in the context of its request.
type watchKey struct{}

// TestInitialized shows which watch a stage can say of that its initial events are sent.
func TestInitialized(t *testing.T) {
	t.Parallel()
	var h *host
	var id string
	say := func(token, id string) int {
		resp, err := h.call(t.Context(), token, stagev1.HeaderInitialized, id, "/", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	check := func(when, token, id string, status int, watch string) {
		t.Helper()
		got := ""
		code := say(token, id)
		select {
		case got = <-h.initialized:
		default:
		}
		if code != status || got != watch {
			t.Errorf("%s: %d, watch %q; want %d, %q", when, code, got, status, watch)
		}
	}
	h = newHost(t, serveStage(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		id = r.Header.Get(stagev1.HeaderRequest)
		check("its own watch", "token-a", id, 204, "pods")
		check("the watch of another stage", "token-b", id, 204, "")
		check("another id", "token-a", "12345", 204, "")
		check("no id", "token-a", "all", 400, "")
		check("no stage", "nobody", id, 401, "")
	})))
	ctx := context.WithValue(t.Context(), watchKey{}, "pods")
	h.chain.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/x", nil).WithContext(ctx))
	check("a watch that has ended", "token-a", id, 204, "")
}

// TestInFlight shows who can use an id, and when.
func TestInFlight(t *testing.T) {
	var f inFlight
	r := httptest.NewRequest("GET", "/", nil)
	id := f.newID()
	if other := f.newID(); other == id {
		t.Error("an id twice")
	}
	var does role
	lookup := func(stage string) error {
		was := does.hasCalled()
		if got, ok := f.call(id, stage); ok && got.r == r && does.hasCalled() {
			return nil
		}
		if does.hasCalled() != was {
			t.Errorf("stage %q has not called, and is marked", stage)
		}
		return errors.New("not found")
	}
	if lookup("") == nil || lookup("a") == nil {
		t.Error("found before a stage had it")
	}
	f.set(id, inFlightRequest{socket: "a", r: r, role: &does})
	if lookup("a") != nil || lookup("b") == nil {
		t.Error("with a, it is not a's alone")
	}
	f.set(id, inFlightRequest{socket: "b", r: r, role: &does})
	if does.hasCalled() {
		t.Error("b is marked for the call of a")
	}
	if lookup("b") != nil || lookup("a") == nil {
		t.Error("with b, it is not b's alone")
	}
	f.remove(id)
	if lookup("b") == nil {
		t.Error("found after its end")
	}
	if n := testing.AllocsPerRun(100, func() { f.set(id, inFlightRequest{socket: "a", r: r, role: &does}); f.remove(id) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// hostHeaders is a propagator to which Audit-Id and the trace are the host's.
type hostHeaders struct{ reported }

func (*hostHeaders) HostHeader(key string) bool {
	return key == "Audit-Id" || key == "Traceparent" || key == "Tracestate"
}

// A stage that calls the next one cannot say for it what is the host's to say, and counts as one that does not serve the request.
func TestCallsAreInTheNameOfTheRequest(t *testing.T) {
	t.Parallel()
	const trace, other = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01"
	const child, unsampled = "00-4bf92f3577b34da6a3ce929d0e0e4736-1111111111111111-01", "00-4bf92f3577b34da6a3ce929d0e0e4736-1111111111111111-00"
	var h *host
	var sent http.Header
	a := serveStage(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		req, err := http.NewRequestWithContext(r.Context(), http.MethodGet, "http://host/x", nil)
		if err != nil {
			t.Error(err)
			return
		}
		req.Header = sent.Clone()
		req.Header.Set("Authorization", "Bearer token-a")
		req.Header.Set(stagev1.HeaderNext, r.Header.Get(stagev1.HeaderRequest))
		client := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", h.socket)
		}}
		resp, err := client.RoundTrip(req)
		if err != nil {
			t.Error(err)
			return
		}
		defer resp.Body.Close()
		w.Header().Set(stagev1.HeaderAudit, "a")
		_, _ = io.Copy(w, resp.Body)
	}))
	b := serveStage(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(stagev1.HeaderAudit, "b")
		for _, key := range []string{"Audit-Id", "Traceparent", "Tracestate"} {
			fmt.Fprint(w, key, r.Header[key])
		}
		for key := range r.Header {
			if lower := strings.ToLower(key); strings.Contains(lower, "imperson") || strings.Contains(lower, "remote") || strings.Contains(lower, "_") || lower == "x-catena-timeout" {
				t.Errorf("b gets %s: %q", key, r.Header[key])
			}
		}
	}))
	h = newHost(t, a, b)
	propagator := &hostHeaders{}
	h.chain.config.Propagator = propagator
	for _, tc := range []struct{ parent, want string }{{other, trace}, {unsampled, trace}, {child, child}, {"x", trace}, {"", trace}} {
		propagator.all = nil
		sent = http.Header{
			"Audit-Id": {"forged"}, "audit_id": {"forged"}, "Tracestate": {"forged=1"}, "Impersonate-User": {"forged"}, "Impersonate_User": {"forged"}, "Impersonate-Extra-x": {"forged"},
			"X-Remote-User": {"forged"}, "X-Catena-Timeout": {"1"},
		}
		if tc.parent != "" {
			sent["Traceparent"] = []string{tc.parent}
		}
		r := httptest.NewRequest(http.MethodGet, "/x", nil)
		r.Header = http.Header{"Audit-Id": {"chosen"}, "Traceparent": {trace}, "Tracestate": {"own=1"}}
		w := httptest.NewRecorder()
		h.chain.ServeHTTP(w, r)
		if got, want := w.Body.String(), "Audit-Id[chosen]Traceparent["+tc.want+"]Tracestate[own=1]"; got != want {
			t.Errorf("%q: %s, want %s", tc.parent, got, want)
		}
		if got, want := strings.Join(propagator.all, ", "), "b serves=true kubernetes=false X-Catena-Audit b, a serves=false kubernetes=false X-Catena-Audit a"; got != want {
			t.Errorf("reported: %s, want %s", got, want)
		}
	}
}

// A stage that has described in the audit event what it serves cannot have the request served by another.
func TestNoCallAfterTheAuditEvent(t *testing.T) {
	t.Parallel()
	var h *host
	hasHead := make(chan struct{})
	a := serveStage(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(stagev1.HeaderAudit, "a")
		w.(http.Flusher).Flush()
		<-hasHead
		resp, err := h.call(r.Context(), "token-a", stagev1.HeaderNext, r.Header.Get(stagev1.HeaderRequest), "/x", nil)
		if err != nil {
			t.Error(err)
			return
		}
		defer resp.Body.Close()
		fmt.Fprintf(w, "%d ", resp.StatusCode)
		_, _ = io.Copy(w, resp.Body)
	}))
	h = newHost(t, a, serveStage(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("b has the request, too") })))
	propagator := &reported{}
	h.chain.config.Propagator = propagator
	resp, err := http.Get(h.URL + "/x")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	close(hasHead)
	text, err := io.ReadAll(resp.Body)
	if err != nil || !strings.HasPrefix(string(text), "409 ") {
		t.Errorf("%s, %v", text, err)
	}
	if got, want := strings.Join(propagator.all, ", "), "a serves=true kubernetes=false X-Catena-Audit a"; got != want {
		t.Errorf("reported: %s, want %s", got, want)
	}
}

// A process that may read only gets nothing done that could have an effect, in whichever way it asks.
func TestReadOnlyCaller(t *testing.T) {
	t.Parallel()
	h := newHost(t, "a", "b")
	for _, c := range []struct {
		method, target, header string
		allowed                bool
	}{
		{"GET", "/api/v1/pods", "", true},
		{"HEAD", "/api/v1/pods", "", true},
		{"POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", "", true},
		{"POST", "/api/v1/pods?dryRun=All", "", true},
		{"POST", "/api/v1/pods", "", false},
		{"POST", "/api/v1/pods?dryRun=All&dryRun=x", "", false},
		{"PUT", "/apis/authorization.k8s.io/v1/subjectaccessreviews", "", false},
		{"DELETE", "/api/v1/pods", "", false},
		{"POST", "/x", stagev1.HeaderDelegate, false},
		{"PATCH", "/x", stagev1.HeaderNext, false},
		{"GET", "/api/v1/pods/a/exec", "Upgrade", false},
	} {
		r, err := http.NewRequestWithContext(t.Context(), c.method, "http://host"+c.target, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer token-a-readonly")
		if c.header != "" {
			r.Header.Set(c.header, "b")
		}
		if c.header == "Upgrade" {
			r.Header.Set("Connection", "Upgrade")
		}
		client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", h.socket)
		}}}
		resp, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		if err := errors.Join(err, resp.Body.Close()); err != nil {
			t.Fatal(err)
		}
		client.CloseIdleConnections()
		if refused := resp.StatusCode == http.StatusForbidden && strings.Contains(string(body), "may not write"); refused == c.allowed {
			t.Errorf("%s %s %s: %d %s", c.method, c.target, c.header, resp.StatusCode, body)
		}
	}
}
