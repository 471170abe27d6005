package system

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/catena-dev/catena/sdk"
	"github.com/catena-dev/catena/test/internal/cluster"
)

// newJoiner makes a stage that stands in front of the aggregator, and merges what it serves into discovery and OpenAPI as the
// aggregator does for the stages downstream.
func newJoiner(env *sdk.Env) (http.Handler, error) {
	env.SetClaims(sdk.Exact("/apis"), sdk.Exact("/openapi/v2"), sdk.Exact("/openapi/v3"), sdk.Prefix("/openapi/v3/apis/joined.test"), sdk.Prefix("/apis/joined.test"))
	env.ListPaths("/apis/joined.test", "/apis/joined.test/v1")
	version := map[string]any{"groupVersion": "joined.test/v1", "version": "v1"}
	resource := map[string]any{"name": "joints", "singularName": "joint", "namespaced": false, "kind": "Joint", "verbs": []string{"list"}}
	mux := http.NewServeMux()
	mux.HandleFunc("/apis/joined.test/v1", serveJSON(map[string]any{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "joined.test/v1", "resources": []any{resource}}))
	mux.HandleFunc("/apis/joined.test", serveJSON(map[string]any{"kind": "APIGroup", "apiVersion": "v1", "name": "joined.test", "versions": []any{version}, "preferredVersion": version}))
	mux.HandleFunc("/apis/joined.test/v1/joints", serveJSON(map[string]any{"kind": "JointList", "apiVersion": "joined.test/v1", "items": []any{}}))
	mux.HandleFunc("/openapi/v3/apis/joined.test/v1", serveJSON(map[string]any{"openapi": "3.0.0", "paths": map[string]any{"/apis/joined.test/v1/joints": map[string]any{}}}))
	mux.HandleFunc("/openapi/v3", joined(env.Next, func(document map[string]any) {
		document["paths"].(map[string]any)["apis/joined.test/v1"] = map[string]any{"serverRelativeURL": "/openapi/v3/apis/joined.test/v1"}
	}))
	mux.HandleFunc("/openapi/v2", joined(env.Next, func(document map[string]any) {
		document["paths"].(map[string]any)["/apis/joined.test/v1/joints"] = map[string]any{}
	}))
	mux.HandleFunc("/apis", joined(env.Next, func(document map[string]any) {
		if document["kind"] == "APIGroupDiscoveryList" {
			document["items"] = append(document["items"].([]any), map[string]any{"metadata": map[string]any{"name": "joined.test"}, "versions": []any{map[string]any{
				"version": "v1", "freshness": "Current", "resources": []any{map[string]any{
					"resource": "joints", "singularResource": "joint", "scope": "Cluster", "verbs": []string{"list"}, "responseKind": map[string]any{"group": "joined.test", "version": "v1", "kind": "Joint"},
				}},
			}}})
			return
		}
		document["groups"] = append(document["groups"].([]any), map[string]any{"name": "joined.test", "versions": []any{version}, "preferredVersion": version})
	}))
	mux.Handle("/", env.Next)
	return mux, nil
}

func serveJSON(v any) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(v)
	}
}

// joined returns a handler of a document that the next stages have, with something added.
func joined(next http.Handler, add func(document map[string]any)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		r = r.Clone(r.Context())
		accept := "application/json"
		for kind := range strings.SplitSeq(r.Header.Get("Accept"), ",") {
			if strings.HasPrefix(kind, "application/json;g=apidiscovery.k8s.io;v=v2;") {
				accept = kind
			}
		}
		r.Header.Set("Accept", accept)
		r.Header.Del("Accept-Encoding")
		r.Header.Del("If-None-Match")
		recorded := httptest.NewRecorder()
		next.ServeHTTP(recorded, r)
		var document map[string]any
		if recorded.Code != http.StatusOK || json.Unmarshal(recorded.Body.Bytes(), &document) != nil {
			w.WriteHeader(recorded.Code)
			_, _ = w.Write(recorded.Body.Bytes())
			return
		}
		add(document)
		w.Header().Set("Content-Type", recorded.Header().Get("Content-Type"))
		_ = json.NewEncoder(w).Encode(document)
	}
}

// A stage in front of the aggregator that does as the aggregator does: the whole chain is in all documents.
func TestChainWithAStageBeforeTheAggregator(t *testing.T) {
	t.Parallel()
	s := shape{names: []string{"joiner", "aggregator", "core", "extensions"}, groups: []string{builtinGroup, customGroup, servicesGroup}}
	config := write(t, "catena.yaml", `apiVersion: catena.dev/v1alpha1
kind: HostConfiguration
stages:
  joiner: {delegate: aggregator, lock: off, grants: {claims: ["/apis", "/apis/joined.test/**", "/openapi/v2", "/openapi/v3", "/openapi/v3/apis/joined.test/**"]}}
  aggregator: {delegate: core}
  core: {delegate: extensions}
  extensions: {}
`)
	c := catena(t, cluster.Options{ConfigFile: config, PluginDirs: []string{plugins(t, "joiner")}, Flags: s.flags()})
	s.check(t, c.Server)
	admin := c.Config(cluster.Admin)
	if got := groupsOf(t, do(t, admin, http.MethodGet, "/apis", "").body); !slices.Contains(got, "joined.test") {
		t.Errorf("discovery has %v", got)
	}
	if got := discoveredGroups(t, admin, peerDiscovery); !slices.Contains(got, "joined.test") {
		t.Errorf("aggregated discovery has %v", got)
	}
	for path, want := range map[string]string{
		"/openapi/v2": "/apis/joined.test/v1/joints", "/openapi/v3": "apis/joined.test/v1", "/openapi/v3/apis/joined.test/v1": "joints", "/readyz?verbose": "[+]joiner/serving",
	} {
		if a := do(t, admin, http.MethodGet, path, ""); a.code != http.StatusOK || !strings.Contains(a.body, want) {
			t.Errorf("%s: %d, without %s: %.200s", path, a.code, want, a.body)
		}
	}
	if resources := kubectl(t, c.Server, "api-resources", "--cached=false"); !strings.Contains(resources, "joints ") {
		t.Errorf("kubectl api-resources:\n%s", resources)
	}
	if list := kubectl(t, c.Server, "get", "joints"); list != "" {
		t.Errorf("kubectl get joints: %q", list)
	}
	if a := do(t, admin, http.MethodGet, "/apis/joined.test/v2", ""); a.code != http.StatusNotFound {
		t.Errorf("a version that nobody serves: %s", fmt.Sprint(a.code))
	}
}
