package hostile

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/catena-dev/catena/test/internal/cluster"
)

// forgery is a server with forgers.
type forgery struct {
	*cluster.Catena
	config *rest.Config
}

// startForgers starts a server with forgers, and returns when it is ready.
func startForgers(t *testing.T, up, down string) forgery {
	t.Helper()
	c := startPlugins(t, forgers, forgerSet(up, down))
	return forgery{c, c.Config(cluster.Admin)}
}

// startPlugins starts a server with stages that this binary is by these names, and returns when it is ready.
func startPlugins(t *testing.T, names, set []string) *cluster.Catena {
	t.Helper()
	dir, err := os.MkdirTemp("", "plugins")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		(&site{dir: dir}).copy(t, self, "catena-stage-"+name)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	c, err := cluster.StartCatena(t.Context(), cluster.Options{PluginDirs: []string{dir}, Set: set})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(t.Failed()); err != nil {
			t.Error(err)
		}
	})
	return c
}

// A server is ready without stages that are not required, whatever is wrong with them: they do not come up, or have no document.
func TestReadyWithoutForgers(t *testing.T) {
	t.Parallel()
	f := startForgers(t, absent, missing)
	f.checkServer(t, "without forgers")
	f.get(t, "/api/v1/namespaces")
}

// What stages without grants say about the server counts for what they claim and no more, wherever they stand and whatever they do.
func TestForgers(t *testing.T) {
	t.Parallel()
	f := startForgers(t, silent, lying)
	f.checkServer(t, "at the start")
	f.checkHealth(t)
	f.checkMetrics(t)
	for _, mode := range []string{lying, endless, heavy, lying, plain} {
		before := f.peak(t)
		for _, name := range forgers {
			f.get(t, "/"+name+"/"+mode)
		}
		if mode == lying || mode == plain {
			for _, name := range forgers {
				eventually(t, "the group of "+name, func() bool { return f.resources(t)[name+".example.com/v1"] == "forged" })
			}
			f.checkServer(t, mode)
			continue
		}
		for range 20 { // the documents are asked for about once a second, and by each of these
			f.checkServer(t, mode)
		}
		if grown := f.peak(t) - before; grown > 300 {
			t.Errorf("%s: the aggregator has taken %d MiB more", mode, grown)
		}
	}
}

// get returns a page of the server.
func (f forgery) get(t *testing.T, path string) string {
	t.Helper()
	code, body, err := send(t.Context(), f.config, http.MethodGet, path, "")
	if err != nil || code != http.StatusOK {
		t.Errorf("%s: %d %.500s %v", path, code, body, err)
	}
	return body
}

// resources returns the names of resources that discovery has, by group version.
func (f forgery) resources(t *testing.T) map[string]string {
	t.Helper()
	var document apidiscoveryv2.APIGroupDiscoveryList
	config := rest.CopyConfig(f.config)
	config.WrapTransport = func(rt http.RoundTripper) http.RoundTripper { return accepting{rt} }
	code, body, err := send(t.Context(), config, http.MethodGet, "/apis", "")
	if err == nil {
		err = json.Unmarshal([]byte(body), &document)
	}
	if err != nil || code != http.StatusOK {
		t.Fatalf("discovery: %d %v", code, err)
	}
	all := map[string]string{}
	for _, group := range document.Items {
		for _, version := range group.Versions {
			var names []string
			for _, r := range version.Resources {
				names = append(names, r.Resource)
			}
			all[group.Name+"/"+version.Version] = strings.Join(names, " ")
		}
	}
	return all
}

// accepting asks for the aggregated document.
type accepting struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (a accepting) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
	return a.next.RoundTrip(r)
}

// checkServer checks that what clients learn about Kubernetes' API is Kubernetes'.
func (f forgery) checkServer(t *testing.T, when string) {
	t.Helper()
	resources := f.resources(t)
	for gv, names := range resources {
		own := slices.ContainsFunc(forgers, func(name string) bool { return strings.HasSuffix(gv, name+".example.com/v1") })
		if strings.Contains(names, "forged") && !own {
			t.Errorf("%s: discovery has %s: %s", when, gv, names)
		}
	}
	if names := resources["apps/v1"]; !strings.Contains(names, "deployments") {
		t.Errorf("%s: apps/v1 has %q", when, names)
	}
	var index struct {
		Paths map[string]struct{ ServerRelativeURL string }
	}
	if err := json.Unmarshal([]byte(f.get(t, "/openapi/v3")), &index); err != nil {
		t.Fatal(err)
	}
	for name, document := range index.Paths {
		if strings.Contains(document.ServerRelativeURL, "forged") && !strings.Contains(name, "forger-") {
			t.Errorf("%s: the index of OpenAPI has %s: %s", when, name, document.ServerRelativeURL)
		}
	}
	if document := f.get(t, "/openapi/v3/apis/apps/v1"); !strings.Contains(document, "deployments") {
		t.Errorf("%s: OpenAPI of apps/v1 is %.300s", when, document)
	}
	var swagger struct {
		Paths       map[string]any
		Definitions map[string]struct {
			Description string
			Kinds       []metav1.GroupVersionKind `json:"x-kubernetes-group-version-kind"`
		}
	}
	if err := json.Unmarshal([]byte(f.get(t, "/openapi/v2")), &swagger); err != nil {
		t.Fatal(err)
	}
	for path := range swagger.Paths {
		if strings.HasSuffix(path, "/forged") && !strings.Contains(path, "forger-") {
			t.Errorf("%s: OpenAPI has the path %s", when, path)
		}
	}
	for name, definition := range swagger.Definitions {
		isForged := definition.Description == "forged"
		if name == "io.k8s.api.apps.v1.Deployment" && isForged {
			t.Errorf("%s: OpenAPI has another %s", when, name)
		}
		for _, kind := range definition.Kinds {
			if isForged && !strings.HasPrefix(kind.Group, "forger-") {
				t.Errorf("%s: OpenAPI has %v as %s", when, kind, name)
			}
		}
	}
	if len(swagger.Definitions) < 500 {
		t.Errorf("%s: OpenAPI has %d definitions", when, len(swagger.Definitions))
	}
}

// checkHealth checks that the checks of the server are the server's.
func (f forgery) checkHealth(t *testing.T) {
	t.Helper()
	for _, path := range []string{"/livez/ping", "/livez/etcd", "/readyz/etcd", "/readyz/poststarthook/rbac/bootstrap-roles", "/readyz/informer-sync", "/readyz/ping", "/healthz", "/livez", "/readyz"} {
		if got := f.get(t, path); got != "ok" {
			t.Errorf("%s: %s", path, got)
		}
	}
	if got := f.get(t, "/livez?verbose"); !strings.Contains(got, "[-]forger-up/ping failed: not required") {
		t.Errorf("livez: %s", got)
	}
	index := f.get(t, "/")
	if strings.Contains(index, "other.example.com") || !strings.Contains(index, `"/apis/forger-up.example.com/v1"`) {
		t.Error("the index has paths that no stage claims, or lacks some")
	}
	var services struct {
		Items []struct{ Metadata metav1.ObjectMeta }
	}
	if err := json.Unmarshal([]byte(f.get(t, "/apis/apiregistration.k8s.io/v1/apiservices")), &services); err != nil {
		t.Fatal(err)
	}
	if n := len(services.Items); n > 600 {
		t.Errorf("%d APIServices", n)
	}
}

// checkMetrics checks that those of core are there, whatever a stage upstream of it has by their names.
func (f forgery) checkMetrics(t *testing.T) {
	t.Helper()
	metrics := f.get(t, "/metrics")
	if !strings.Contains(metrics, "# TYPE apiserver_storage_size_bytes gauge") || !strings.Contains(metrics, `stage="core"`) {
		t.Error("the type of a metric of core is another stage's")
	}
}

// peak returns the most memory that the process of the aggregator has had, in MiB.
func (f forgery) peak(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", f.Stages()["aggregator"]))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "VmHWM:")
	kib, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		t.Fatal(err)
	}
	return kib >> 10
}
