package front

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	genericfilters "k8s.io/apiserver/pkg/server/filters"

	"github.com/catena-dev/catena/host/internal/canary"
)

// resolved makes a request as the filters pass it on: with its user, and what it is about.
func resolved(t *testing.T, name, method, target string) *http.Request {
	t.Helper()
	r := httptest.NewRequest(method, target, nil)
	resolver := &request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}
	info, err := resolver.NewRequestInfo(r)
	if err != nil {
		t.Fatal(err)
	}
	return r.WithContext(request.WithUser(request.WithRequestInfo(r.Context(), info), &user.DefaultInfo{Name: name}))
}

// What sticks to one side of a canary has one key, and everything else another.
func TestCanaryKey(t *testing.T) {
	t.Parallel()
	key := func(by canary.By, name, target string, change func(*http.Request)) string {
		r := resolved(t, name, "GET", target)
		r.RemoteAddr = "192.0.2.1:1000"
		r.Header.Set("User-Agent", "kubectl/v1.37.0")
		if change != nil {
			change(r)
		}
		key, ok := CanaryKey(r, by)
		if ok != (key != "") {
			t.Errorf("%s of %s: %q, %v", target, name, key, ok)
		}
		return key
	}
	port := func(r *http.Request) { r.RemoteAddr = "192.0.2.1:2000" }
	address := func(r *http.Request) { r.RemoteAddr = "192.0.2.2:1000" }
	agent := func(r *http.Request) { r.Header.Set("User-Agent", "manager/v1") }
	const one, other, nodes = "/api/v1/namespaces/one/pods", "/api/v1/namespaces/two/pods", "/api/v1/nodes"
	for _, c := range []struct {
		by     canary.By
		a, b   string
		same   bool
		reason string
	}{
		{canary.Client, key(canary.Client, "alice", one, nil), key(canary.Client, "alice", other, port), true, "another connection of a client"},
		{canary.Client, key(canary.Client, "alice", one, nil), key(canary.Client, "alice", one, address), false, "another address"},
		{canary.Client, key(canary.Client, "alice", one, nil), key(canary.Client, "alice", one, agent), false, "another program"},
		{canary.Client, key(canary.Client, "alice", one, nil), key(canary.Client, "bob", one, nil), false, "another user"},
		{canary.User, key(canary.User, "alice", one, nil), key(canary.User, "alice", other, agent), true, "another program of a user"},
		{canary.User, key(canary.User, "alice", one, nil), key(canary.User, "bob", one, nil), false, "another user"},
		{canary.Namespace, key(canary.Namespace, "alice", one, nil), key(canary.Namespace, "bob", one, address), true, "another client in a namespace"},
		{canary.Namespace, key(canary.Namespace, "alice", one, nil), key(canary.Namespace, "alice", other, nil), false, "another namespace"},
	} {
		if (c.a == c.b) != c.same || c.a == "" || c.b == "" {
			t.Errorf("by %s, %s: %q and %q", c.by, c.reason, c.a, c.b)
		}
	}
	if got := key(canary.Namespace, "alice", nodes, nil); got != "" {
		t.Errorf("a request outside of namespaces has the key %q", got)
	}
	for _, by := range canary.All() {
		if got := key(by, user.APIServerUser, one, nil); got != "" {
			t.Errorf("by %s, a request of the host itself has the key %q", by, got)
		}
	}
}

func TestCanaryKind(t *testing.T) {
	t.Parallel()
	f := &Frontend{longRunning: genericfilters.BasicLongRunningRequestCheck(sets.NewString("watch"), sets.NewString("exec"))}
	for _, c := range []struct {
		method, target string
		want           canary.Kind
		streams        bool
	}{
		{"GET", "/api/v1/namespaces/one/pods/p", canary.Kind{Verb: "get", Resource: "pods"}, false},
		{"GET", "/apis/apps/v1/deployments?watch=1", canary.Kind{Verb: "watch", Resource: "deployments.apps"}, true},
		{"PUT", "/apis/apps/v1/namespaces/one/deployments/d/scale", canary.Kind{Verb: "update", Resource: "deployments.apps/scale"}, false},
		{"POST", "/api/v1/namespaces/one/pods/p/exec", canary.Kind{Verb: "create", Resource: "pods/exec"}, true},
		{"GET", "/openapi/v2", canary.Kind{Verb: "get", Resource: "paths"}, false},
	} {
		if kind, streams := f.CanaryKind(resolved(t, "alice", c.method, c.target)); kind != c.want || streams != c.streams {
			t.Errorf("%s %s: %+v, %v", c.method, c.target, kind, streams)
		}
	}
	if kind, streams := f.CanaryKind(httptest.NewRequest("PATCH", "/x", nil)); kind != (canary.Kind{Verb: "patch", Resource: "paths"}) || streams {
		t.Errorf("what was not resolved: %+v, %v", kind, streams)
	}
}
