package front_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/catena-dev/catena/host/internal/front"
	"github.com/catena-dev/catena/host/internal/relay"
	"github.com/catena-dev/catena/sdk/claim"
)

// Only users who may get the chain get the trail of a request, and no stage sees that it was
// asked for.
func TestTrailIsForPrivilegedUsers(t *testing.T) {
	t.Parallel()
	asked := make(chan string, 10)
	routed := relay.NewChain(relay.Config{NotFound: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.Header.Get("X-Catena-Explain")
		fmt.Fprint(w, "end")
	})})
	routed.Set(relay.Tables{All: claim.NewTable()}, nil)
	s := start(t, flagValues{"anonymous-auth": {"true"}, "authorization-mode": {"AlwaysAllow"}}, routed.ServeHTTP)
	if a := s.admin(t).get(t, "/x", "X-Catena-Explain: 1"); a.header.Get("X-Catena-Trail") != "host;outcome=served" {
		t.Errorf("with the header: %d %v", a.code, a.header)
	}
	if a := s.admin(t).get(t, "/x"); a.header.Get("X-Catena-Trail") != "" {
		t.Errorf("without it: %v", a.header)
	}
	for range 2 {
		if got := <-asked; got != "" {
			t.Errorf("the chain got X-Catena-Explain: %q", got)
		}
	}

	strict := start(t, flagValues{"anonymous-auth": {"true"}, "authorization-mode": {"RBAC"}}, routed.ServeHTTP)
	if a := strict.client(t).get(t, "/version", "X-Catena-Explain: 1"); a.header.Get("X-Catena-Trail") != "" {
		t.Errorf("anonymous: %v", a.header)
	}
	if a := strict.admin(t).get(t, "/x", "X-Catena-Explain: 1"); a.header.Get("X-Catena-Trail") == "" {
		t.Errorf("administrator: %d %v", a.code, a.header)
	}
}

func TestAuthorize(t *testing.T) {
	t.Parallel()
	s := newServer(t, flagValues{"authorization-mode": {"RBAC"}})
	t.Cleanup(func() { s.Close() })
	for _, tc := range []struct {
		method, path, user string
		groups             []string
		want               front.Access
	}{
		{"GET", "/api/v1/pods?watch=true", "root", []string{"system:masters"}, front.Access{Request: "watch pods", Allowed: true, Groups: []string{"system:masters", "system:authenticated"}}},
		{"DELETE", "/apis/apps/v1/namespaces/a/deployments/web", "jane", nil, front.Access{Request: `delete deployments.apps "web" in namespace "a"`, Groups: []string{"system:authenticated"}}},
		{"PATCH", "/api/v1/namespaces/a/pods/b/status", "system:serviceaccount:a:x", nil, front.Access{Request: `patch pods/status "b" in namespace "a"`, Groups: []string{"system:serviceaccounts", "system:serviceaccounts:a", "system:authenticated"}}},
		{"GET", "/metrics", "system:anonymous", nil, front.Access{Request: "get /metrics", Groups: []string{"system:unauthenticated"}}},
	} {
		got, err := s.Authorize(t.Context(), tc.method, tc.path, tc.user, tc.groups)
		if err != nil {
			t.Fatal(err)
		}
		if got.Request != tc.want.Request || got.Allowed != tc.want.Allowed || fmt.Sprint(got.Groups) != fmt.Sprint(tc.want.Groups) {
			t.Errorf("%s %s by %s: %+v, want %+v", tc.method, tc.path, tc.user, got, tc.want)
		}
	}
}

func TestServes(t *testing.T) {
	t.Parallel()
	s := start(t, nil, http.NotFound)
	for path, want := range map[string]bool{
		"/": true, "/healthz": true, "/livez": true, "/metrics": true, "/version": true, "/debug/pprof/heap": true,
		"/index.html": true, "/debug/flags/v": true, "/debug/stage": false, "/healthzz": false, "/indexes": false,
		"/api": false, "/apis/apps/v1": false, "/openapi/v3": false, "/hello": false,
	} {
		if got := s.Serves(path); got != want {
			t.Errorf("%s: %t, want %t", path, got, want)
		}
	}
}
