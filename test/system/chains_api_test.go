package system

import (
	"encoding/json"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/catena-dev/catena/test/internal/cluster"
)

const widgets = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.test.example.com}
spec:
  group: test.example.com
  scope: Namespaced
  names: {kind: Widget, plural: widgets, singular: widget, shortNames: [wd]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              size: {type: integer, minimum: 1, default: 7, description: How large the widget is}
          status:
            type: object
            x-kubernetes-preserve-unknown-fields: true
`

const widget = `
apiVersion: test.example.com/v1
kind: Widget
metadata: {name: NAME, namespace: default}
spec: {}
`

// extensions alone is an API server for custom resources.
func TestChainOfExtensionsOnly(t *testing.T) {
	t.Parallel()
	c := catena(t, cluster.Options{
		ConfigFile: filepath.Join(cluster.Root(), "configs", "extensions-only.yaml"),
		Flags:      map[string]string{"authorization-mode": "AlwaysAllow"},
	})
	if stages := c.Stages(); len(stages) != 1 || stages["extensions"] == 0 {
		t.Errorf("the stages are %v", stages)
	}
	admin := c.Config(cluster.Admin)
	serveWidgets(t, c.Server)
	for path, want := range map[string]int{
		"/api/v1/namespaces": 404, "/api": 404, "/apis": 200, "/apis/test.example.com/v1": 200, "/openapi/v2": 200,
		"/apis/apps/v1/deployments": 404, "/apis/apiregistration.k8s.io/v1/apiservices": 404,
	} {
		if a := do(t, admin, http.MethodGet, path, ""); a.code != want {
			t.Errorf("%s: %d, want %d: %.200s", path, a.code, want, a.body)
		}
	}
}

// serveWidgets makes a definition, and checks that its objects are served.
func serveWidgets(t *testing.T, s *cluster.Server) {
	t.Helper()
	admin := s.Config(cluster.Admin)
	const path = "/apis/test.example.com/v1/namespaces/default/widgets"
	apply(t, s, widgets)
	// "kubectl wait" fails if a definition has no conditions yet.
	eventually(t, "widgets are served", func() bool { return do(t, admin, http.MethodGet, path, "").code == 200 })
	// kubectl finds them by discovery, and checks them by OpenAPI.
	eventually(t, "widgets are in discovery", func() bool { return strings.Contains(kubectl(t, s, "api-resources"), "widgets") })
	apply(t, s, strings.ReplaceAll(widget, "NAME", "a"))
	if size := kubectl(t, s, "get", "wd", "a", "-n", "default", "-o", "jsonpath={.spec.size}"); size != "7" {
		t.Errorf("the default size is %q", size)
	}
	if a := do(t, admin, http.MethodPost, path, `{"apiVersion": "test.example.com/v1", "kind": "Widget", "metadata": {"name": "b"}, "spec": {"size": 0}}`); a.code != 422 {
		t.Errorf("a widget of size 0: %d %s", a.code, a.body)
	}
	a := do(t, admin, http.MethodPatch, path+"/a/status", `{"status": {"well": true}}`, "Content-Type: application/merge-patch+json")
	if a.code != 200 || !strings.Contains(a.body, `"well":true`) {
		t.Errorf("status: %d %s", a.code, a.body)
	}
	kubectl(t, s, "delete", "wd", "a", "-n", "default")
	if a := do(t, admin, http.MethodGet, path+"/a", ""); a.code != 404 {
		t.Errorf("deleted widget: %d", a.code)
	}
}

// A group that a third party's stage serves is like a built-in one.
func TestThirdPartyGroup(t *testing.T) {
	t.Parallel()
	l := theLong(t)
	admin := l.Config(cluster.Admin)

	resources := kubectl(t, l.Server, "api-resources", "--api-group", "wardle.example.com")
	if !strings.Contains(resources, "flunders") || !strings.Contains(resources, "fischers") {
		t.Errorf("api-resources prints\n%s", resources)
	}
	if groups := groupsOf(t, do(t, admin, http.MethodGet, "/apis", "").body); !slices.Contains(groups, "wardle.example.com") {
		t.Errorf("the groups are %q", groups)
	}
	aggregated := do(t, admin, http.MethodGet, "/apis", "", "Accept: application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
	if !strings.Contains(aggregated.body, `"wardle.example.com"`) || !strings.Contains(aggregated.body, `"resource":"fischers"`) {
		t.Errorf("aggregated discovery: %.500s", aggregated.body)
	}
	for path, want := range map[string]string{
		"/apis/wardle.example.com":                     `"v1beta1"`,
		"/apis/wardle.example.com/v1alpha1":            `"flunders"`,
		"/openapi/v2":                                  `"/apis/wardle.example.com/v1alpha1/namespaces/{namespace}/flunders/{name}"`,
		"/openapi/v3":                                  `apis/wardle.example.com/v1alpha1`,
		"/openapi/v3/apis/wardle.example.com/v1alpha1": `Flunder`,
		"/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.wardle.example.com": `"Available"`,
		"/": `"/apis/wardle.example.com/v1alpha1"`,
	} {
		if a := do(t, admin, http.MethodGet, path, ""); a.code != 200 || !strings.Contains(a.body, want) {
			t.Errorf("%s: %d, %q is not in it: %.300s", path, a.code, want, a.body)
		}
	}
	if text := kubectl(t, l.Server, "explain", "flunders.spec"); !strings.Contains(text, "reference") {
		t.Errorf("explain prints\n%s", text)
	}
}

func groupsOf(t *testing.T, body string) []string {
	t.Helper()
	var list struct{ Groups []struct{ Name string } }
	if err := json.Unmarshal([]byte(body), &list); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, g := range list.Groups {
		names = append(names, g.Name)
	}
	return names
}

// Its objects are stored, converted, authorized, patched and watched as any others.
func TestThirdPartyObjects(t *testing.T) {
	t.Parallel()
	l := theLong(t)
	apply(t, l.Server, `
apiVersion: wardle.example.com/v1alpha1
kind: Flunder
metadata: {name: a, namespace: default, labels: {kind: odd}}
spec: {reference: b, referenceType: Flunder}
`)
	if ref := kubectl(t, l.Server, "get", "flunders.v1beta1.wardle.example.com", "a", "-o", "jsonpath={.spec.flunderReference}"); ref != "b" {
		t.Errorf("the reference is %q in the other version", ref)
	}
	kubectl(t, l.Server, "label", "flunder", "a", "more=yes")
	kubectl(t, l.Server, "apply", "--server-side", "--field-manager=other", "-f", write(t, "flunder.yaml",
		"apiVersion: wardle.example.com/v1alpha1\nkind: Flunder\nmetadata: {name: a, namespace: default, labels: {other: mine}}\n"))
	if labels := kubectl(t, l.Server, "get", "flunder", "a", "-o", "jsonpath={.metadata.labels}"); !strings.Contains(labels, `"more":"yes"`) || !strings.Contains(labels, `"other":"mine"`) {
		t.Errorf("the labels are %s", labels)
	}
	const path = "/apis/wardle.example.com/v1alpha1/namespaces/default/flunders"
	if a := do(t, l.Config(cluster.Alice), http.MethodGet, path, ""); a.code != http.StatusForbidden {
		t.Errorf("alice gets %d", a.code)
	}
	bad := `{"apiVersion": "wardle.example.com/v1beta1", "kind": "Flunder", "metadata": {"name": "bad"}, "spec": {"flunderReference": "x", "fischerReference": "y"}}`
	if a := do(t, l.Config(cluster.Admin), http.MethodPost, strings.Replace(path, "v1alpha1", "v1beta1", 1), bad); a.code != 422 {
		t.Errorf("an invalid flunder: %d %s", a.code, a.body)
	}
	kubectl(t, l.Server, "delete", "flunder", "a")
}
