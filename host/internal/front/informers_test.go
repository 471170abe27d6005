package front_test

import (
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
)

// builtinAPIs serves the lists that the filters' informers get; what there is of RBAC lets
// jane get /late. While it is down, it responds with 503.
func builtinAPIs(t *testing.T, down *atomic.Bool) http.Handler {
	objects := map[string]string{
		"clusterroles":        `{"metadata":{"name":"late"},"rules":[{"verbs":["get"],"nonResourceURLs":["/late"]}]}`,
		"clusterrolebindings": `{"metadata":{"name":"late"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"late"},"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"jane"}]}`,
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		query := r.URL.Query()
		switch {
		case r.URL.Path == "/late":
			w.WriteHeader(http.StatusTeapot)
		case down.Load():
			w.WriteHeader(http.StatusServiceUnavailable)
		case query.Has("sendInitialEvents"):
			w.WriteHeader(http.StatusBadRequest) // the client lists instead
		case query.Has("watch"):
			w.Header().Set("Content-Type", "application/json")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		default:
			w.Header().Set("Content-Type", "application/json")
			name := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
			if _, err := io.WriteString(w, `{"metadata":{"resourceVersion":"1"},"items":[`+objects[name]+`]}`); err != nil {
				t.Error(err)
			}
		}
	})
}

// A stage that serves the built-in APIs may come after the server is ready: from then on
// the filters know its objects, and readiness depends on that.
func TestInformersStartWhenTheirAPIsAreServed(t *testing.T) {
	t.Parallel()
	s := newServer(t, flagValues{"authorization-mode": {"RBAC"}})
	var down atomic.Bool
	down.Store(true)
	s.SetChain(builtinAPIs(t, &down))
	s.SetListedPaths([]string{"/apis/example.com"})
	s.run(t)
	s.waitReady(t) // without the APIs
	if a := s.getAs("jane", nil, "/late"); a.code != http.StatusForbidden {
		t.Errorf("without RBAC: %d %s", a.code, a.body)
	}

	s.SetListedPaths([]string{"/apis/example.com", "/api", "/api/v1"})
	if a := s.admin(t).get(t, "/readyz?verbose"); a.code == http.StatusOK || !strings.Contains(a.body, "[-]informer-sync failed") {
		t.Errorf("before the informers have synced: %d %s", a.code, a.body)
	}
	down.Store(false)
	s.waitReady(t)
	eventually(t, "authorization by a role", func() bool { return s.getAs("jane", nil, "/late").code == http.StatusTeapot })

	s.SetListedPaths(nil)
	if a := s.admin(t).get(t, "/readyz?verbose"); a.code != http.StatusOK {
		t.Errorf("when the stage has been removed: %d %s", a.code, a.body)
	}
}

// Paths can be known before the server runs, as those of stages that start with it.
func TestReadinessWaitsForInformers(t *testing.T) {
	t.Parallel()
	s := newServer(t, flagValues{"authorization-mode": {"RBAC"}})
	var down atomic.Bool
	down.Store(true)
	s.SetChain(builtinAPIs(t, &down))
	s.SetListedPaths([]string{"/api", "/api/v1"})
	s.run(t)
	admin := s.admin(t)
	eventually(t, "response", func() bool { return admin.get(t, "/livez").code == http.StatusOK })
	if a := admin.get(t, "/readyz?verbose"); a.code == http.StatusOK || !strings.Contains(a.body, "[-]informer-sync failed") {
		t.Errorf("readiness: %d %s", a.code, a.body)
	}
	select {
	case <-s.Ready():
		t.Error("Ready is closed")
	default:
	}
	down.Store(false)
	<-s.Ready()
}
