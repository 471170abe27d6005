package system

import (
	"encoding/json"
	"maps"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/catena-dev/catena/test/internal/cluster"
)

const listedAPIs = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gears.pages.example.com}
spec:
  group: pages.example.com
  scope: Namespaced
  names: {plural: gears, kind: Gear}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
  - {name: v2, served: true, storage: false, schema: {openAPIV3Schema: {type: object}}}
---
apiVersion: v1
kind: Service
metadata: {name: pages, namespace: default}
spec: {type: ExternalName, externalName: localhost}
---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1.remote.example.com}
spec: {group: remote.example.com, version: v1, groupPriorityMinimum: 1000, versionPriority: 15, insecureSkipTLSVerify: true,
  service: {name: pages, namespace: default, port: 9}}
`

// What a server says of itself, and what of its process can be changed, is the same as in kube-apiserver.
func TestServerPages(t *testing.T) {
	t.Parallel()
	events, err := cluster.NewKubeAPIServer(cluster.Options{}) // for its etcd
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = events.Stop(false) })
	p := startPair(t, cluster.Options{Flags: map[string]string{
		"v": "1", "enable-logs-handler": "true", "etcd-servers-overrides": "/events#unix://" + filepath.Join(events.Dir, "etcd.sock"),
	}})
	said := map[string]map[string]string{}
	p.each(func(name string, s *cluster.Server) {
		get := func(method, path, body string) string {
			a := do(t, s.Config(cluster.Admin), method, path, body)
			if a.code != http.StatusOK {
				t.Errorf("%s: %s %s: %d %s", name, method, path, a.code, a.body)
			}
			return a.body
		}
		lists := func(path string) bool { return slices.Contains(apisOf(t, get("GET", "/", "")), path) }
		says := map[string]string{"flags": flagsIn(string(read(s.Process().Log)))}

		apply(t, s, listedAPIs)
		eventually(t, name+" lists the APIs of others", func() bool {
			return lists("/apis/pages.example.com/v1") && lists("/apis/pages.example.com/v2") && lists("/apis/remote.example.com/v1")
		})
		says["index"] = strings.Join(apisOf(t, get("GET", "/", "")), " ")
		kubectl(t, s, "delete", "customresourcedefinition/gears.pages.example.com", "apiservice/v1.remote.example.com")
		eventually(t, name+" lists them no more", func() bool { return !lists("/apis/pages.example.com") && !lists("/apis/remote.example.com") })
		says["index without them"] = strings.Join(apisOf(t, get("GET", "/", "")), " ")

		for _, endpoint := range []string{"healthz", "livez", "readyz"} {
			says[endpoint] = strconv.FormatBool(strings.Contains(get("GET", "/"+endpoint+"?verbose", ""), "loopback-serving-certificate"))
			says[endpoint+", excluded"] = excludedFrom(get("GET", "/"+endpoint+"?verbose&exclude=etcd&exclude=etcd-readiness&exclude=none", ""))
		}
		says["statusz"] = strings.Join(regexp.MustCompile(`/\S+`).FindAllString(get("GET", "/statusz", ""), -1), " ")

		before := requestsToEtcd(get("GET", "/metrics", ""))
		says["reset"] = get("DELETE", "/metrics", "")
		if after := requestsToEtcd(get("GET", "/metrics", "")); after >= before {
			t.Errorf("%s has made %d requests to etcd, and %d after a reset of its metrics", name, before, after)
		}
		says["verbosity"] = get("PUT", "/debug/flags/v", "2")
		if a := do(t, s.Config(cluster.Admin), http.MethodPut, "/debug/flags/v", "much"); a.code != http.StatusBadRequest {
			t.Errorf("%s: a verbosity that is none: %d %s", name, a.code, a.body)
		}
		said[name] = says
	})
	if diff := cmp.Diff(said["kube-apiserver"], said["Catena"]); diff != "" {
		t.Errorf("Catena (+) is not as kube-apiserver (-):\n%s", diff)
	}
}

// apisOf are the paths of APIs in an index.
func apisOf(t *testing.T, index string) []string {
	t.Helper()
	var list struct{ Paths []string }
	if err := json.Unmarshal([]byte(index), &list); err != nil {
		t.Fatalf("%v: %s", err, index)
	}
	return slices.DeleteFunc(list.Paths, func(path string) bool { return !strings.HasPrefix(path, "/apis") && !strings.HasPrefix(path, "/api") })
}

// flagsIn are the flags of kube-apiserver in a log, but for those that end it.
func flagsIn(log string) string {
	names := map[string]bool{}
	for _, m := range regexp.MustCompile(`FLAG: --([a-z0-9-]+)=`).FindAllStringSubmatch(log, -1) {
		if !strings.HasPrefix(m[1], "catena-") && m[1] != "help" && m[1] != "version" {
			names[m[1]] = true
		}
	}
	return strings.Join(slices.Sorted(maps.Keys(names)), " ")
}

// excludedFrom are the checks that were left out, without the stages that have them, and what there was no check of.
func excludedFrom(report string) string {
	checks := map[string]bool{}
	for line := range strings.Lines(report) {
		switch line := strings.TrimPrefix(strings.TrimSpace(line), "[+]"); {
		case strings.HasPrefix(line, "warn:"):
			checks[line] = true
		case strings.Contains(line, " excluded"):
			checks[line[strings.LastIndexByte(strings.Fields(line)[0], '/')+1:]] = true
		}
	}
	return strings.Join(slices.Sorted(maps.Keys(checks)), "\n")
}

// requestsToEtcd is how many there were by the metrics.
func requestsToEtcd(metrics string) int {
	n := 0
	for _, m := range regexp.MustCompile(`(?m)^etcd_request_duration_seconds_count\{.*\} (\d+)$`).FindAllStringSubmatch(metrics, -1) {
		count, _ := strconv.Atoi(m[1])
		n += count
	}
	return n
}
