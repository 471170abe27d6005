package main

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/catena-dev/catena/sdk"
	"github.com/catena-dev/catena/sdk/stagetest"
)

var next = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	_, _ = io.WriteString(w, r.Method+" "+string(body))
})

func start(t *testing.T, config any) *stagetest.Stage {
	t.Helper()
	stage := sdk.Stage{Name: "readonly", New: readonly, Config: defaults()}
	return stagetest.Start(t, stage, stagetest.Options{Config: config, Next: next})
}

func TestReadonly(t *testing.T) {
	t.Parallel()
	const pods = "/api/v1/namespaces/default/pods"
	stage := start(t, map[string]any{"message": "come back on Monday"})
	admin := &sdk.User{Name: "admin", Groups: []string{"system:masters"}}
	upgrade := http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}}
	for name, tc := range map[string]struct {
		call    stagetest.Call
		allowed bool
	}{
		"get":          {stagetest.Call{Path: pods}, true},
		"create":       {stagetest.Call{Method: "POST", Path: pods, Body: "{}"}, false},
		"large create": {stagetest.Call{Method: "POST", Path: pods, Body: strings.Repeat("x", 1<<20)}, false},
		"update":       {stagetest.Call{Method: "PUT", Path: pods + "/a", Body: "{}"}, false},
		"patch":        {stagetest.Call{Method: "PATCH", Path: pods + "/a", Body: "{}"}, false},
		"delete":       {stagetest.Call{Method: "DELETE", Path: pods + "/a"}, false},
		"unknown":      {stagetest.Call{Method: "BREW", Path: pods}, false},
		"exec":         {stagetest.Call{Path: pods + "/a/exec", Header: upgrade}, false},
		"odd path":     {stagetest.Call{Method: "POST", Path: "/apis/coordination.k8s.io/../apps/v1/deployments"}, false},
		"admin":        {stagetest.Call{Method: "POST", Path: pods, Body: "{}", User: admin}, true},
		"admin, large": {stagetest.Call{Method: "POST", Path: pods, Body: strings.Repeat("x", 1<<20), User: admin}, true},
		"lease":        {stagetest.Call{Method: "PUT", Path: "/apis/coordination.k8s.io/v1/namespaces/a/leases/b", Body: "{}"}, true},
		"can-i":        {stagetest.Call{Method: "POST", Path: "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", Body: "{}"}, true},
	} {
		got := stage.Do(t, tc.call)
		if got.Declined != tc.allowed {
			t.Errorf("%s: %d %q, passed on: %t", name, got.Status, got.Body, got.Declined)
		}
		if tc.allowed {
			if !strings.HasSuffix(got.Body, " "+tc.call.Body) {
				t.Errorf("%s: the body is lost", name)
			}
			continue
		}
		if got.Status != http.StatusForbidden || !strings.Contains(got.Body, `"message":"come back on Monday","metadata":{},"reason":"Forbidden"`) {
			t.Errorf("%s: %d %s", name, got.Status, got.Body)
		}
		if got.Annotations["readonly.stage.catena.dev/refused"] != "true" {
			t.Errorf("%s: %v", name, got.Annotations)
		}
	}
}

// If the server is not frozen, the stage gets no requests.
func TestThawed(t *testing.T) {
	t.Parallel()
	if stage := start(t, Config{}); len(stage.Claims()) != 0 {
		t.Errorf("claims %v", stage.Claims())
	}
}

func TestProblems(t *testing.T) {
	t.Parallel()
	problems := start(t, nil).Problems(t, map[string]any{"frozen": "yes", "group": nil})
	want := "frozen: want bool, got string; group: unknown key (known: frozen, groups, message, paths)"
	if got := strings.Join(problems, "; "); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

func TestProcess(t *testing.T) {
	t.Parallel()
	stage := stagetest.StartProcess(t, stagetest.Build(t, "."), stagetest.Options{Next: next})
	if got := stage.Do(t, stagetest.Call{Method: "POST", Path: "/api/v1/pods", Body: "{}"}); got.Status != http.StatusForbidden {
		t.Errorf("%d %q", got.Status, got.Body)
	}
	if got := stage.Get(t, "/api/v1/pods"); !got.Declined || got.Body != "GET " {
		t.Errorf("%d %q", got.Status, got.Body)
	}
}
