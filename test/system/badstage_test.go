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
var badStages = map[string]func(*sdk.Env) (http.Handler, error){"greedy": newGreedy, "broken": newBroken}

// newGreedy claims what is the host's and what is its neighbours', changes that all the
// time, logs as fast as it can, and hands on what it gets.
func newGreedy(env *sdk.Env) (http.Handler, error) {
	env.Claim("/", "/greedy")
	env.ClaimPrefix("/healthz", "/livez", "/readyz", "/metrics", "/version")
	env.OnPrepareRun(func(context.Context) error {
		go func() {
			for i := 0; env.Context().Err() == nil; i++ {
				env.SetClaims(sdk.Exact("/"), sdk.Exact("/greedy"), sdk.Prefix("/healthz"), sdk.Prefix("/api/v1"), sdk.Exact(fmt.Sprintf("/greedy/%d", i)))
			}
		}()
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

// newBroken lists a group that is not what discovery and OpenAPI have to be, and claims
// what the stages in front of it serve.
func newBroken(env *sdk.Env) (http.Handler, error) {
	env.ListPaths("/apis/broken.example.com", "/apis/broken.example.com/v1", "/openapi/v2", "/openapi/v3")
	env.ClaimPrefix("/apis/broken.example.com", "/api/v1", "/apis/apps", "/openapi")
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, "{\"kind\": \"\x00 nonsense", strings.Repeat("[", 1000))
	}), nil
}

const badChain = `
apiVersion: catena.dev/v1alpha1
kind: HostConfiguration
apiserver:
  secure-port: 0
  authorization-mode: [Node, RBAC]
stages:
  greedy: {delegate: aggregator}
  aggregator: {delegate: core}
  core: {delegate: extensions}
  extensions: {delegate: broken}
  broken: {}
`

// Stages that claim what is not theirs, that never stop changing and logging, and whose
// discovery and OpenAPI are no such thing, do their neighbours no harm.
func TestBadStages(t *testing.T) {
	t.Parallel()
	c := catena(t, cluster.Options{
		ConfigFile: write(t, "catena.yaml", badChain), PluginDirs: []string{plugins(t, "greedy", "broken")},
	})
	admin := c.Config(cluster.Admin)
	kinds := "Accept: application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	for _, tc := range []struct{ path, want, header string }{
		{"/", `"/apis/apps/v1"`, ""},
		{"/healthz", "ok", ""},
		{"/version", `"gitVersion"`, ""},
		{"/metrics", "catena_", ""},
		{"/greedy", "mine", ""},
		{"/api/v1/namespaces", `"NamespaceList"`, ""},
		{"/apis/apps/v1/deployments", `"DeploymentList"`, ""},
		{"/apis", `"apps"`, ""},
		{"/apis", `"deployments"`, kinds},
		{"/openapi/v2", "/apis/apps/v1/deployments", ""},
		{"/openapi/v3", "apis/apps/v1", ""},
		{"/openapi/v3/apis/apps/v1", "Deployment", ""},
		{"/apis/broken.example.com/v1", "nonsense", ""}, // its own, as it is
	} {
		var headers []string
		if tc.header != "" {
			headers = append(headers, tc.header)
		}
		if a := do(t, admin, http.MethodGet, tc.path, "", headers...); a.code != http.StatusOK || !strings.Contains(a.body, tc.want) {
			t.Errorf("%s: %d, %q is not in it: %.300s", tc.path, a.code, tc.want, a.body)
		}
	}
	if a := do(t, admin, http.MethodPost, "/api/v1/namespaces", `{"metadata":{"name":"between"}}`, "Content-Type: application/json"); a.code != http.StatusCreated {
		t.Errorf("a namespace: %d %s", a.code, a.body)
	}
	if text := kubectl(t, c.Server, "get", "namespaces"); !strings.Contains(text, "between") {
		t.Errorf("kubectl prints\n%s", text)
	}
	log, err := os.ReadFile(filepath.Join(c.Dir, "catena.log"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"catena.greedy: the stage logs too much"} {
		if !strings.Contains(string(log), want) {
			t.Errorf("%q is not in the log", want)
		}
	}
}
