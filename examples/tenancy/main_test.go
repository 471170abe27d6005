package main

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/catena-dev/catena/sdk"
	"github.com/catena-dev/catena/sdk/stagetest"
)

// echo responds with what the stages downstream get.
var echo = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	fmt.Fprintf(w, "%s %s %d", r.Method, r.RequestURI, len(body))
})

func start(t *testing.T) *stagetest.Stage {
	t.Helper()
	stage := sdk.Stage{Name: "tenancy", New: tenancy, Config: defaults()}
	return stagetest.Start(t, stage, stagetest.Options{Next: echo})
}

func TestConfine(t *testing.T) {
	t.Parallel()
	stage := start(t)
	const own = "/api/v1/namespaces/tenant-acme"
	for _, tc := range []struct{ method, path, want string }{
		{"GET", "/api/v1/pods", own + "/pods"},
		{"GET", "/api/v1/pods?watch=true&labelSelector=a%3Db", own + "/pods?watch=true&labelSelector=a%3Db"},
		{"GET", "/api/v1/namespaces/tenant-acme/pods/a", own + "/pods/a"},
		{"POST", "/apis/apps/v1/namespaces/tenant-acme/deployments", "/apis/apps/v1/namespaces/tenant-acme/deployments"},
		{"DELETE", "/apis/apps/v1/deployments", "/apis/apps/v1/namespaces/tenant-acme/deployments"},
		{"GET", "/api/v1/nodes", own + "/nodes"}, // and so not found
		{"GET", "/api/v1/namespaces/tenant-acme", own},
		{"GET", "/api", "/api"}, {"GET", "/apis", "/apis"}, {"GET", "/apis/apps/v1", "/apis/apps/v1"},
		{"GET", "/openapi/v3/api/v1", "/openapi/v3/api/v1"}, {"GET", "/version", "/version"},

		{"GET", "/api/v1/namespaces", ""}, {"POST", "/api/v1/namespaces", ""},
		{"GET", "/api/v1/namespaces/default/pods", ""}, {"GET", "/api/v1/namespaces/default", ""},
		{"DELETE", "/api/v1/namespaces/tenant-acme", ""}, {"PUT", "/api/v1/namespaces/tenant-acme/finalize", ""},
		{"GET", "/api/v1/namespaces/tenant-acme/../default/pods", ""},
		{"GET", "/api/v1/namespaces/tenant-acme%2F..%2Fdefault/pods", ""},
		{"GET", "/api/v1/../v1/namespaces/default/pods", ""}, {"GET", "/api//v1/namespaces/default/pods", ""},
		{"GET", "/api/v1/watch/namespaces/default/pods", ""}, {"GET", "/api/v1/proxy/nodes/a", ""},
		{"POST", "/apis", ""}, {"GET", "/metrics", ""}, {"GET", "/healthz", ""}, {"GET", "/", ""}, {"GET", "", ""},
		{"GET", "/tenants/other/api/v1/pods", ""},
	} {
		got := stage.Do(t, stagetest.Call{Method: tc.method, Path: "/tenants/acme" + tc.path})
		if tc.want == "" {
			if got.Status != http.StatusForbidden || got.Called != 0 || got.Declined {
				t.Errorf("%s %s: %d %s", tc.method, tc.path, got.Status, got.Body)
			}
			continue
		}
		if want := tc.method + " " + tc.want + " 0"; got.Body != want || got.Called != 1 {
			t.Errorf("%s %s: %q, want %q", tc.method, tc.path, got.Body, want)
		}
		if got.Annotations["tenancy.stage.catena.dev/namespace"] != "tenant-acme" {
			t.Errorf("%s: %v", tc.path, got.Annotations)
		}
	}
}

func TestTenants(t *testing.T) {
	t.Parallel()
	stage := start(t)
	for _, tenant := range []string{"", "Acme", "a_b", "-", "a.b", strings.Repeat("x", 60), "%20"} {
		if got := stage.Get(t, "/tenants/"+tenant+"/api/v1/pods"); got.Status != http.StatusForbidden || got.Called != 0 {
			t.Errorf("%q: %d %s", tenant, got.Status, got.Body)
		}
	}
	if stage.Claimed("/tenants") || stage.Claimed("/api/v1/pods") || !stage.Claimed("/tenants/acme/api") {
		t.Errorf("claims %v", stage.Claims())
	}
	if got := stage.Problems(t, map[string]string{"prefix": "/api"}); len(got) != 1 {
		t.Errorf("%q", got)
	}
}

func TestProcess(t *testing.T) {
	t.Parallel()
	stage := stagetest.StartProcess(t, stagetest.Build(t, "."), stagetest.Options{Next: echo})
	body := strings.Repeat("x", 1<<20)
	got := stage.Do(t, stagetest.Call{Method: "POST", Path: "/tenants/acme/api/v1/pods", Body: body})
	if want := "POST /api/v1/namespaces/tenant-acme/pods 1048576"; got.Body != want {
		t.Errorf("%q, want %q", got.Body, want)
	}
}
