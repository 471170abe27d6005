package system

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/catena-dev/catena/sdk"
	"github.com/catena-dev/catena/test/internal/cluster"
)

// badStages are stages that work, and do not behave.
var badStages = map[string]func(*sdk.Env) (http.Handler, error){
	"greedy": newGreedy, "broken": newBroken, "garbled": newGarbled, "old": newOld, "idle": newIdle, "crashing": newCrashing, "leaky": newLeaky, "tidy": newTidy, "gossip": newGossip, "breaker": newBreaker,
}

// newGreedy claims what is the host's and what is its neighbours', changes that all the
// time, logs as fast as it can, and hands on what it gets.
func newGreedy(env *sdk.Env) (http.Handler, error) {
	env.Claim("/", "/greedy")
	env.ClaimPrefix("/healthz", "/livez", "/readyz", "/metrics", "/version")
	// Not before: PrepareRun would return whichever claims there are by then.
	env.PostStartHook("claims", func(context.Context) error {
		go func() {
			for i := 0; env.Context().Err() == nil; i++ {
				env.SetClaims(sdk.Exact("/"), sdk.Exact("/greedy"), sdk.Prefix("/healthz"), sdk.Prefix("/api/v1"), sdk.Exact(fmt.Sprintf("/greedy/%d", i)))
			}
		}()
		return nil
	})
	env.OnPrepareRun(func(context.Context) error {
		go func() {
			line := []byte(strings.Repeat("noise ", 100) + "\n")
			for env.Context().Err() == nil {
				if _, err := os.Stderr.Write(line); err != nil {
					return
				}
			}
		}()
		return nil
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/greedy") {
			fmt.Fprint(w, "mine")
			return
		}
		env.Next.ServeHTTP(w, r)
	}), nil
}

// newCrashing ends its process when a request comes that asks for it.
func newCrashing(env *sdk.Env) (http.Handler, error) {
	env.ClaimPrefix("/crashing")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/crashing/now" {
			os.Exit(7)
		}
		fmt.Fprint(w, "well")
	}), nil
}

// newBroken lists a group and not where discovery begins, and claims what the stages in
// front of it serve.
func newBroken(env *sdk.Env) (http.Handler, error) {
	env.ListPaths("/apis/broken.example.com", "/apis/broken.example.com/v1", "/openapi/v2", "/openapi/v3")
	env.ClaimPrefix("/apis/broken.example.com", "/api/v1", "/apis/apps", "/openapi")
	return http.HandlerFunc(writeNonsense), nil
}

// newGarbled is an API server whose discovery and OpenAPI are no such thing.
func newGarbled(env *sdk.Env) (http.Handler, error) {
	env.ListPaths("/apis", "/apis/garbled.example.com", "/apis/garbled.example.com/v1", "/openapi/v2", "/openapi/v3")
	env.Claim("/apis")
	env.ClaimPrefix("/apis/garbled.example.com", "/openapi")
	return http.HandlerFunc(writeNonsense), nil
}

func writeNonsense(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprint(w, "{\"kind\": \"\x00 nonsense", strings.Repeat("[", 1000))
}

// newOld is an API server from the time before OpenAPI v3.
func newOld(env *sdk.Env) (http.Handler, error) {
	env.ListPaths("/apis", "/apis/old.example.com", "/apis/old.example.com/v1", "/openapi/v2")
	env.Claim("/apis", "/openapi/v2")
	env.ClaimPrefix("/apis/old.example.com")
	mux := http.NewServeMux()
	for path, text := range map[string]string{
		"/apis": `{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","items":[{"metadata":{"name":"old.example.com"},` +
			`"versions":[{"version":"v1","freshness":"Current","resources":[{"resource":"relics","scope":"Cluster","verbs":["get"]}]}]}]}`,
		"/openapi/v2":              `{"swagger":"2.0","info":{"title":"old","version":"v1"},"paths":{"/apis/old.example.com/v1/relics":{}}}`,
		"/apis/old.example.com/v1": `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"old.example.com/v1","resources":[]}`,
	} {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, text)
		})
	}
	return mux, nil
}

// newIdle claims nothing, and is no API server.
func newIdle(env *sdk.Env) (http.Handler, error) {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		env.Log.Error("got what is not for it", "path", r.URL.Path)
		w.WriteHeader(http.StatusTeapot)
	}), nil
}

const badChain = `
apiVersion: catena.dev/v1alpha1
kind: HostConfiguration
apiserver:
  secure-port: 0
  authorization-mode: [Node, RBAC]
stages:
  greedy: {lock: off, delegate: aggregator, grants: {claims: ["/**"], systemRequests: true}}
  aggregator: {delegate: core}
  core: {delegate: extensions}
  extensions: {delegate: broken}
  broken: {lock: off, delegate: garbled, grants: {claims: ["/**"], systemRequests: true}}
  garbled: {lock: off, delegate: old, grants: {claims: ["/**"], systemRequests: true}}
  old: {lock: off, delegate: idle, grants: {claims: ["/**"], systemRequests: true}}
  idle: {lock: off, grants: {claims: ["/**"], systemRequests: true}}
`

// Stages that claim what is not theirs or nothing, that never stop changing and logging,
// and whose discovery and OpenAPI are no such thing, do their neighbours no harm, and the
// log says what is wrong with each.
func TestBadStages(t *testing.T) {
	t.Parallel()
	c := catena(t, cluster.Options{
		ConfigFile: write(t, "catena.yaml", badChain), PluginDirs: []string{plugins(t, "greedy", "broken", "garbled", "old", "idle")},
	})
	admin := c.Config(cluster.Admin)
	kinds := "Accept: application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	for _, tc := range []struct {
		path   string
		code   int
		want   string
		header string
	}{
		{"/", 200, `"/apis/apps/v1"`, ""},
		{"/healthz", 200, "ok", ""},
		{"/version", 200, `"gitVersion"`, ""},
		{"/metrics", 200, "catena_", ""},
		{"/greedy", 200, "mine", ""},
		{"/api/v1/namespaces", 200, `"NamespaceList"`, ""},
		{"/apis/apps/v1/deployments", 200, `"DeploymentList"`, ""},
		{"/apis", 200, `"apps"`, ""},
		{"/apis", 200, `"deployments"`, kinds},
		{"/apis", 200, `{"version":"v1","freshness":"Stale"}`, kinds}, // of garbled.example.com
		{"/apis", 200, `"relics"`, kinds},
		{"/openapi/v2", 200, "/apis/apps/v1/deployments", ""},
		{"/openapi/v2", 200, "/apis/old.example.com/v1/relics", ""},
		{"/openapi/v3", 200, "apis/apps/v1", ""},
		{"/openapi/v3/apis/apps/v1", 200, "Deployment", ""},
		{"/apis/broken.example.com/v1", 200, "nonsense", ""}, // its own, as it is
		{"/apis/garbled.example.com/v1", 200, "nonsense", ""},
		{"/idle", 404, "404 page not found", ""},
	} {
		var headers []string
		if tc.header != "" {
			headers = append(headers, tc.header)
		}
		if a := do(t, admin, http.MethodGet, tc.path, "", headers...); a.code != tc.code || !strings.Contains(a.body, tc.want) {
			t.Errorf("%s: %d, %q is not in it: %.300s", tc.path, a.code, tc.want, a.body)
		}
	}
	if a := do(t, admin, http.MethodPost, "/api/v1/namespaces", `{"metadata":{"name":"between"}}`, "Content-Type: application/json"); a.code != http.StatusCreated {
		t.Errorf("a namespace: %d %s", a.code, a.body)
	}
	if text := kubectl(t, c.Server, "get", "namespaces"); !strings.Contains(text, "between") {
		t.Errorf("kubectl prints\n%s", text)
	}
	isIdle(t, c)
	checkBadLog(t, filepath.Join(c.Dir, "catena.log"))
}

// isIdle checks that the stage that claims nothing is in the chain as such.
func isIdle(t *testing.T, c *cluster.Catena) {
	t.Helper()
	out, err := c.Command(t.Context(), "status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(out) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "idle" {
			if claims := f[len(f)-2]; f[1] != "serving" || claims != "0" {
				t.Errorf("status of the stage idle: %s", line)
			}
			return
		}
	}
	t.Errorf("no stage idle in\n%s", out)
}

// checkBadLog checks that the log says what is wrong with the stages, once for each event.
func checkBadLog(t *testing.T, path string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ line, detail string }{
		{"the stage claims paths that the host serves itself", `stage=greedy`},
		{"the stage claims paths that the host serves itself", `paths="/ /healthz /livez /readyz /metrics /version"`},
		{"a stage lists API groups, and not /apis", "delegate=broken"},
		{"discovery of a stage is malformed", "delegate=garbled"},
		{"OpenAPI documents of a stage are malformed", "delegate=garbled"},
		{"OpenAPI document of a stage is malformed", "delegate=garbled"},
	} {
		n, lines := 0, ""
		for line := range strings.Lines(string(text)) {
			if strings.Contains(line, tc.line) {
				n, lines = n+1, lines+line
			}
		}
		if n != 1 || !strings.Contains(lines, tc.detail) {
			t.Errorf("%d times in the log, want once and with %s: %s\n%s", n, tc.detail, tc.line, lines)
		}
	}
	if strings.Contains(string(text), "failed to download k8s_internal_local") {
		t.Error("what Kubernetes logs for each request for /openapi/v2 is in the log")
	}
	if !strings.Contains(string(text), "catena.greedy: the stage logs too much") {
		t.Error("nothing in the log of how much greedy logs")
	}
	if strings.Contains(string(text), "got what is not for it") {
		t.Error("the stage idle got a request")
	}
}
