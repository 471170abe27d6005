package system

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/catena-dev/catena/test/internal/cluster"
)

// shape is a chain that is not the default one.
type shape struct {
	stages string
	// names of its stages, head first.
	names []string
	// groups are some of those that it serves; others are not found.
	groups []string
}

const (
	builtinGroup  = "apps"
	customGroup   = "apiextensions.k8s.io"
	servicesGroup = "apiregistration.k8s.io"
)

var shapes = map[string]shape{
	"core and extensions": {
		stages: "core: {delegate: extensions}\n  extensions: {}", names: []string{"core", "extensions"},
		groups: []string{builtinGroup, customGroup},
	},
	"extensions and core": {
		stages: "extensions: {delegate: core}\n  core: {}", names: []string{"extensions", "core"}, groups: []string{builtinGroup, customGroup},
	},
	"core":                      {stages: "core: {}", names: []string{"core"}, groups: []string{builtinGroup}},
	"aggregator and core":       {stages: "aggregator: {delegate: core}\n  core: {}", names: []string{"aggregator", "core"}, groups: []string{builtinGroup, servicesGroup}},
	"aggregator and extensions": {stages: "aggregator: {delegate: extensions}\n  extensions: {}", names: []string{"aggregator", "extensions"}, groups: []string{customGroup, servicesGroup}},
	"extensions":                {stages: "extensions: {}", names: []string{"extensions"}, groups: []string{customGroup}},
	"aggregator":                {stages: "aggregator: {}", names: []string{"aggregator"}, groups: []string{servicesGroup}},
	"extensions before core": {
		stages: "aggregator: {delegate: extensions}\n  extensions: {delegate: core}\n  core: {}", names: []string{"aggregator", "extensions", "core"},
		groups: []string{builtinGroup, customGroup, servicesGroup},
	},
}

// flags are those of the chain: without core, what reads its resources is off, as in configs/extensions-only.yaml.
func (s shape) flags() map[string]string {
	flags := map[string]string{"authorization-mode": "AlwaysAllow"}
	if !s.has(builtinGroup) {
		flags["enable-priority-and-fairness"] = "false"
		flags["disable-admission-plugins"] = "NamespaceLifecycle,LimitRanger,ServiceAccount,PodSecurity,Priority,RuntimeClass,DefaultStorageClass,DefaultIngressClass," +
			"PersistentVolumeClaimResize,ResourceQuota,NodeDeclaredFeatureValidator,PodResizeValidator,PodTopologyLabels," +
			"MutatingAdmissionPolicy,MutatingAdmissionWebhook,ValidatingAdmissionPolicy,ValidatingAdmissionWebhook"
	}
	return flags
}

// A chain serves what its stages have, and says so everywhere: discovery of both kinds, OpenAPI of both versions, 404, health,
// and with them kubectl.
func TestChainsOfOtherShapes(t *testing.T) {
	t.Parallel()
	for name, s := range shapes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := write(t, "catena.yaml", "apiVersion: catena.dev/v1alpha1\nkind: HostConfiguration\nstages:\n  "+s.stages+"\n")
			c := catena(t, cluster.Options{ConfigFile: config, Flags: s.flags()})
			if got := slices.Sorted(maps.Keys(c.Stages())); !slices.Equal(got, slices.Sorted(slices.Values(s.names))) {
				t.Errorf("the stages are %v", got)
			}
			s.check(t, c.Server)
		})
	}
}

func (s shape) has(group string) bool { return slices.Contains(s.groups, group) }

func (s shape) check(t *testing.T, server *cluster.Server) {
	t.Helper()
	admin := server.Config(cluster.Admin)
	get := func(path string, headers ...string) response {
		return do(t, admin, http.MethodGet, path, "", headers...)
	}
	for _, path := range []string{"/livez", "/readyz", "/healthz", "/version", "/"} {
		if a := get(path); a.code != http.StatusOK {
			t.Errorf("%s: %d %s", path, a.code, a.body)
		}
	}
	ready := get("/readyz?verbose").body
	for _, name := range []string{"aggregator", "core", "extensions"} {
		if got := strings.Contains(ready, "[+]"+name+"/"); got != slices.Contains(s.names, name) {
			t.Errorf("the checks of %s are there: %v\n%s", name, got, ready)
		}
	}
	code := func(served bool) int {
		if served {
			return http.StatusOK
		}
		return http.StatusNotFound
	}
	for path, want := range map[string]int{
		"/apis/apps/v1/deployments": code(s.has(builtinGroup)), "/apis/apps": code(s.has(builtinGroup)), "/apis/apps/v1": code(s.has(builtinGroup)),
		"/api": code(s.has(builtinGroup)), "/api/v1": code(s.has(builtinGroup)), "/api/v1/namespaces/default/configmaps": code(s.has(builtinGroup)),
		"/apis/apiextensions.k8s.io/v1/customresourcedefinitions": code(s.has(customGroup)), "/apis/apiextensions.k8s.io": code(s.has(customGroup)),
		"/apis/apiregistration.k8s.io/v1/apiservices": code(s.has(servicesGroup)),
		"/apis/nobody.example.com/v1/things":          http.StatusNotFound, "/apis/nobody.example.com": http.StatusNotFound, "/nowhere": http.StatusNotFound,
	} {
		if a := get(path); a.code != want {
			t.Errorf("%s: %d, want %d: %.200s", path, a.code, want, a.body)
		}
	}
	if s.has(customGroup) {
		serveWidgets(t, server)
	}
	s.discovers(t, server)
	s.documents(t, server)
	if s.has(builtinGroup) {
		kubectl(t, server, "create", "configmap", "shape", "--from-literal=a=b")
		if out := kubectl(t, server, "get", "configmaps", "shape", "-o", "jsonpath={.data.a}"); out != "b" {
			t.Errorf("the config map has %q", out)
		}
		kubectl(t, server, "delete", "configmap", "shape")
	}
	if s.has(customGroup) {
		s.forgetsWidgets(t, server)
	}
}

// forgetsWidgets checks that a custom resource which is gone is in no document.
func (s shape) forgetsWidgets(t *testing.T, server *cluster.Server) {
	t.Helper()
	admin := server.Config(cluster.Admin)
	kubectl(t, server, "delete", "crd", "widgets.test.example.com")
	for _, path := range []string{"/apis", "/openapi/v2", "/openapi/v3"} {
		eventually(t, path+" has no widgets", func() bool {
			a := do(t, admin, http.MethodGet, path, "")
			return a.code == http.StatusOK && !strings.Contains(a.body, "test.example.com")
		})
	}
	if got := discoveredGroups(t, admin, peerDiscovery); slices.Contains(got, "test.example.com") {
		t.Errorf("aggregated discovery has %v", got)
	}
}

// discovers checks that both kinds of discovery have the groups, and no others.
func (s shape) discovers(t *testing.T, server *cluster.Server) {
	t.Helper()
	admin := server.Config(cluster.Admin)
	groups := map[string]bool{builtinGroup: s.has(builtinGroup), customGroup: s.has(customGroup), "test.example.com": s.has(customGroup), servicesGroup: s.has(servicesGroup)}
	for what, list := range map[string]func() []string{
		"discovery":            func() []string { return groupsOf(t, do(t, admin, http.MethodGet, "/apis", "").body) },
		"aggregated discovery": func() []string { return discoveredGroups(t, admin, peerDiscovery) },
	} {
		var got []string
		eventually(t, what+" has all groups", func() bool {
			got = list()
			for group, want := range groups {
				if slices.Contains(got, group) != want {
					return false
				}
			}
			return true
		}, func() string { return fmt.Sprint(got) })
	}
	resources := kubectl(t, server, "api-resources", "--cached=false")
	for resource, want := range map[string]bool{"deployments ": s.has(builtinGroup), "configmaps ": s.has(builtinGroup), "widgets ": s.has(customGroup), "apiservices ": s.has(servicesGroup)} {
		if strings.Contains(resources, resource) != want {
			t.Errorf("kubectl api-resources: %s is there: %v\n%s", resource, !want, resources)
		}
	}
}

// documents checks both versions of OpenAPI.
func (s shape) documents(t *testing.T, server *cluster.Server) {
	t.Helper()
	admin := server.Config(cluster.Admin)
	for prefix, want := range map[string]bool{
		"apis/apps/v1": s.has(builtinGroup), "api/v1": s.has(builtinGroup), "apis/test.example.com/v1": s.has(customGroup), "apis/apiextensions.k8s.io/v1": s.has(customGroup),
		"apis/apiregistration.k8s.io/v1": s.has(servicesGroup),
	} {
		eventually(t, "OpenAPI v3 of "+prefix, func() bool {
			var index struct {
				Paths map[string]struct{ ServerRelativeURL string }
			}
			a := do(t, admin, http.MethodGet, "/openapi/v3", "")
			if err := json.Unmarshal([]byte(a.body), &index); err != nil {
				t.Fatalf("%d: %v: %.200s", a.code, err, a.body)
			}
			_, listed := index.Paths[prefix]
			document := do(t, admin, http.MethodGet, "/openapi/v3/"+prefix, "").body // of what there is not, empty or an error
			return listed == want && strings.Contains(document, `"openapi":"3.0.0"`) == want
		})
		eventually(t, "OpenAPI v2 of "+prefix, func() bool {
			return strings.Contains(do(t, admin, http.MethodGet, "/openapi/v2", "").body, `"/`+prefix+`/`) == want
		})
	}
	if s.has(customGroup) {
		if text := kubectl(t, server, "explain", "widgets.spec.size"); !strings.Contains(text, "How large the widget is") {
			t.Errorf("explain prints\n%s", text)
		}
	}
	if s.has(builtinGroup) {
		if text := kubectl(t, server, "explain", "configmaps.data"); !strings.Contains(text, "Data contains the configuration data") {
			t.Errorf("explain prints\n%s", text)
		}
	}
}
