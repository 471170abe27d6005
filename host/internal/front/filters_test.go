package front_test

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/catena-dev/catena/host/internal/front"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// open returns flags that let all users do everything, even anonymous ones, which
// Kubernetes' code does not admit with AlwaysAllow.
func open(t *testing.T) flagValues {
	t.Helper()
	var policy string
	for _, group := range []string{"system:authenticated", "system:unauthenticated"} {
		policy += `{"apiVersion":"abac.authorization.kubernetes.io/v1beta1","kind":"Policy","spec":{"group":"` + group +
			`","namespace":"*","apiGroup":"*","resource":"*","nonResourcePath":"*"}}` + "\n"
	}
	return flagValues{"authorization-mode": {"ABAC"}, "authorization-policy-file": {writeFile(t, "policy.jsonl", policy)}}
}

// Not in parallel: metrics are one registry per process, and while a server is being
// built, Kubernetes' code has them measure its store.
func TestOwnPaths(t *testing.T) {
	s := start(t, open(t), func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "stage: "+r.URL.Path) })
	s.SetListedPaths([]string{"/apis/example.com", "/version"})
	admin := s.admin(t)
	for path, want := range map[string][]string{
		"/":                         {`"/apis/example.com"`, `"/readyz/ping"`, `"/metrics"`},
		"/index.html":               {`"/apis/example.com"`},
		"/version":                  {`"gitVersion": "v1.37.0"`, `"major": "1"`, `"minor": "37"`},
		"/healthz":                  {"ok"},
		"/livez/ping":               {"ok"},
		"/readyz?verbose":           {"[+]ping ok", "[+]informer-sync ok", "[+]shutdown ok"},
		"/metrics":                  {"apiserver_request_total", "kubernetes_feature_enabled", `git_version="v1.37.0"`},
		"/debug/pprof/heap?debug=1": {"heap profile"},
		"/apis":                     {"stage: /apis"},
		"/api/v1/namespaces":        {"stage: /api/v1/namespaces"},
		"/openapi/v2":               {"stage: /openapi/v2"},
		"/.well-known/openid-confi": {"stage: /.well-known/openid-confi"},
	} {
		a := admin.get(t, path)
		for _, part := range want {
			if a.code != http.StatusOK || !strings.Contains(a.body, part) {
				t.Errorf("%s: %d, want 200 with %q: %.300s", path, a.code, part, a.body)
			}
		}
	}

	s.SetVersion(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "core: "+r.URL.Path) }))
	for path, want := range map[string]string{"/version": "core: /version", "/version/": "core: /version/", "/version/x": "core: /version/x", "/versions": "stage: /versions"} {
		if a := admin.get(t, path); a.code != http.StatusOK || a.body != want {
			t.Errorf("%s: %d %q, want %q", path, a.code, a.body, want)
		}
	}
	s.SetVersion(nil)
	if a := admin.get(t, "/version"); !strings.Contains(a.body, `"gitVersion": "v1.37.0"`) {
		t.Errorf("without a stage that has it, /version is %q", a.body)
	}
}

func TestAuthentication(t *testing.T) {
	t.Parallel()
	flags := open(t)
	flags["token-auth-file"] = []string{writeFile(t, "tokens.csv", `secret,bob,b-1,"dev,ops"`+"\n")}
	var seen atomic.Pointer[user]
	var s *server
	s = start(t, flags, func(_ http.ResponseWriter, r *http.Request) {
		u := propagatedUser(t, s, r)
		seen.Store(&u)
		for name := range r.Header {
			if strings.HasPrefix(name, "X-Remote-") || strings.HasPrefix(name, "X-Catena-") || name == "Authorization" || strings.HasPrefix(name, "Impersonate-") {
				t.Errorf("stage gets %s", name)
			}
		}
	})
	proxy := keyPair(t, s.files.FrontProxyClient, s.files.FrontProxyClientKey)
	bob := s.client(t)
	bob.token = "secret"
	for name, c := range map[string]struct {
		client  *client
		headers []string
		want    user
	}{
		"anonymous":   {s.client(t), nil, user{Name: "system:anonymous", Groups: []string{"system:unauthenticated"}}},
		"certificate": {s.admin(t), nil, user{Name: "kube-apiserver-kubelet-client", Groups: []string{"system:masters", "system:authenticated"}}},
		"token":       {bob, nil, user{Name: "bob", UID: "b-1", Groups: []string{"dev", "ops", "system:authenticated"}}},
		"front proxy": {s.client(t, proxy), []string{"X-Remote-User: zoë", "X-Remote-Group: a", "X-Remote-Group: b", `X-Remote-Extra-Say: "hi"\`}, user{
			Name: "zoë", Groups: []string{"a", "b", "system:authenticated"}, Extra: map[string][]string{"say": {`"hi"\`}},
		}},
		"forged front proxy": {s.client(t), []string{"X-Remote-User: root", "X-Remote-Group: system:masters", "X-Remote-Extra-A: b", "X-Remote-Uid: 0"},
			user{Name: "system:anonymous", Groups: []string{"system:unauthenticated"}}},
		"forged stage header": {bob, []string{"X-Catena-User: {}"}, user{Name: "bob", UID: "b-1", Groups: []string{"dev", "ops", "system:authenticated"}}},
		"impersonation":       {s.admin(t), []string{"Impersonate-User: carol", "Impersonate-Group: dev"}, user{Name: "carol", Groups: []string{"dev", "system:authenticated"}}},
	} {
		seen.Store(nil)
		a := c.client.get(t, "/api/v1/pods", c.headers...)
		got := seen.Load()
		if got == nil {
			t.Errorf("%s: %d %s", name, a.code, a.body)
			continue
		}
		if got.Name != c.want.Name || c.want.UID != "" && got.UID != c.want.UID || !slices.Equal(got.Groups, c.want.Groups) {
			t.Errorf("%s: stage gets %+v, want %+v", name, *got, c.want)
		}
		for key, values := range c.want.Extra {
			if !slices.Equal(got.Extra[key], values) {
				t.Errorf("%s: extra %q is %q, want %q", name, key, got.Extra[key], values)
			}
		}
	}

	bad := s.client(t)
	bad.token = "wrong"
	a := bad.get(t, "/api/v1/pods")
	if reason, _ := a.status(t); a.code != http.StatusUnauthorized || reason != "Unauthorized" {
		t.Errorf("wrong token: %d %s", a.code, a.body)
	}
}

func TestAuthorization(t *testing.T) {
	t.Parallel()
	s := start(t, nil, func(http.ResponseWriter, *http.Request) {}) // Node,RBAC
	a := s.client(t).get(t, "/api/v1/pods")
	reason, message := a.status(t)
	if a.code != http.StatusForbidden || reason != "Forbidden" || message != `pods is forbidden: User "system:anonymous" cannot list resource "pods" in API group "" at the cluster scope` {
		t.Errorf("anonymous: %d %s %s", a.code, reason, message)
	}
	if a := s.admin(t).get(t, "/api/v1/pods"); a.code != http.StatusOK {
		t.Errorf("administrator: %d %s", a.code, a.body)
	}
}

func TestEndOfChain(t *testing.T) {
	t.Parallel()
	s := newServer(t, open(t))
	complete := make(chan struct{})
	if err := s.AddSignal("stage/installed", complete); err != nil {
		t.Fatal(err)
	}
	s.run(t)
	admin := s.admin(t)
	eventually(t, "response", func() bool { return admin.get(t, "/livez").code == http.StatusOK })

	if a := admin.get(t, "/apis/x"); a.code != http.StatusServiceUnavailable || a.header.Get("Retry-After") != "1" {
		t.Errorf("without a chain: %d %v %s", a.code, a.header, a.body)
	}
	s.SetChain(s.NotFound())
	if a := admin.get(t, "/apis/x"); a.code != http.StatusServiceUnavailable || a.header.Get("Retry-After") == "" {
		t.Errorf("before the signal: %d %v %s", a.code, a.header, a.body)
	}
	close(complete)
	eventually(t, "404", func() bool { return admin.get(t, "/apis/x").code == http.StatusNotFound })
	if a := admin.get(t, "/apis/x"); a.body != "404 page not found\n" {
		t.Errorf("body of 404 is %q", a.body)
	}
}

func TestLoopbackUser(t *testing.T) {
	t.Parallel()
	var s *server
	s = start(t, nil, func(w http.ResponseWriter, r *http.Request) {
		u := propagatedUser(t, s, r)
		_, _ = io.WriteString(w, u.Name+" "+strings.Join(u.Groups, ","))
	})
	for name, c := range map[string]struct {
		user   string
		groups []string
		code   int
		body   string
	}{
		"privileged": {"system:apiserver", []string{"system:masters"}, 200, "system:apiserver system:authenticated,system:masters"},
		"other":      {"system:catena:stage:x", []string{"system:catena:stages"}, 403, "cannot list resource"},
	} {
		r := httptest.NewRequest(http.MethodGet, "/api/v1/pods", nil)
		// Headers of the caller about its identity are ignored.
		r.Header.Set("Authorization", "Bearer wrong")
		r.Header.Set("X-Remote-User", "root")
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, r.WithContext(front.WithLoopbackUser(r.Context(), c.user, c.groups)))
		if w.Code != c.code || !strings.Contains(w.Body.String(), c.body) {
			t.Errorf("%s: %d %s, want %d with %q", name, w.Code, w.Body, c.code, c.body)
		}
	}
}

func TestPropagatedHeaders(t *testing.T) {
	t.Parallel()
	headers := make(chan http.Header, 1)
	var s *server
	s = start(t, open(t), func(_ http.ResponseWriter, r *http.Request) { headers <- propagated(t, s, r) })
	admin := s.admin(t)

	began := time.Now()
	admin.get(t, "/api/v1/pods")
	h := receive(t, headers)
	passed := time.Since(began).Milliseconds()
	if ms := number(t, h.Get(stagev1.HeaderTimeout)); ms < 60_000-passed-1 || ms > 60_000 {
		t.Errorf("%s is %d, %d ms after the request", stagev1.HeaderTimeout, ms, passed)
	}
	if received := time.UnixMicro(number(t, h.Get(stagev1.HeaderReceived))); received.Before(began.Truncate(time.Microsecond)) || time.Since(received) > deadline {
		t.Errorf("received at %v, not after %v", received, began)
	}
	if h.Get("Audit-ID") == "" {
		t.Error("no audit id")
	}
	if h.Get(stagev1.HeaderAuditLevel) != "" {
		t.Error("there is an audit level without a policy")
	}

	admin.get(t, "/api/v1/pods?watch=true")
	if h := receive(t, headers); h.Get(stagev1.HeaderTimeout) != "" {
		t.Error("a watch has a deadline")
	}
	// What of a client's own id reaches the stage is the relay's to copy.
	admin.get(t, "/api/v1/pods", "Audit-ID: mine")
	if h := receive(t, headers); h.Get("Audit-ID") != "" {
		t.Error("an audit id is added to that of the client, which the stage gets anyway")
	}
}

func TestTrace(t *testing.T) {
	t.Parallel()
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	// A collector that takes nothing, at once.
	collector := grpc.NewServer()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = collector.Serve(listener) }()
	t.Cleanup(collector.Stop)
	flags := open(t)
	flags["tracing-config-file"] = []string{writeFile(t, "tracing.yaml", `
apiVersion: apiserver.config.k8s.io/v1
kind: TracingConfiguration
endpoint: `+listener.Addr().String()+`
samplingRatePerMillion: 1000000
`)}
	parents := make(chan string, 1)
	s := start(t, flags, func(_ http.ResponseWriter, r *http.Request) { parents <- r.Header.Get("Traceparent") })
	s.admin(t).get(t, "/api/v1/pods", "Traceparent: "+parent)
	got := receive(t, parents)
	if !strings.HasPrefix(got, "00-0af7651916cd43dd8448eb211c80319c-") || got == parent {
		t.Errorf("stage gets %q, want a span of this server in the client's trace", got)
	}
}
