package system

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/catena-dev/catena/test/internal/cluster"
)

// gears have two versions; pods of the group have the name of a built-in resource.
const gears = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: PLURAL.gears.example.com}
spec:
  group: gears.example.com
  scope: Namespaced
  names: {kind: KIND, plural: PLURAL}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
  - {name: v2, served: true, storage: false, schema: {openAPIV3Schema: {type: object}}}
`

// asked is what an admission webhook is asked about.
type asked struct {
	mu  sync.Mutex
	log []string
}

func (a *asked) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var review struct {
		Request struct {
			UID                                          string
			Kind, RequestKind, Resource, RequestResource map[string]string
			SubResource, RequestSubResource, Name        string
			Object                                       struct{ APIVersion, Kind string }
		}
	}
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	q := review.Request
	a.mu.Lock()
	a.log = append(a.log, fmt.Sprintf("%s: kind %v of %v, resource %v of %v, subresource %q of %q, object %s %s",
		r.URL.Path, q.Kind, q.RequestKind, q.Resource, q.RequestResource, q.SubResource, q.RequestSubResource, q.Object.APIVersion, q.Object.Kind))
	a.mu.Unlock()
	fmt.Fprintf(w, `{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": {"uid": %q, "allowed": true}}`, q.UID)
}

// take returns what was asked since last time, and not by the server of its own accord.
func (a *asked) take() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	log := a.log
	a.log = nil
	slices.Sort(log)
	return log
}

// equivalentRules are what the webhook asks for. A request that none of them names reaches it
// as one of an equivalent resource.
var equivalentRules = []struct{ group, version, resource string }{
	{"events.k8s.io", "v1", "events"},
	{"", "v1", "events"},
	{"autoscaling", "v2", "horizontalpodautoscalers"},
	{"apps", "v1", "deployments/scale"},
	{"", "v1", "replicationcontrollers/scale"},
	{"", "v1", "pods"},
	{"", "v1", "pods/eviction"},
	{"policy", "v1", "pods/eviction"},
	{"gears.example.com", "v2", "gears"},
	{"gears.example.com", "v2", "pods"},
	{"apiextensions.k8s.io", "v1", "customresourcedefinitions"},
	{"apiregistration.k8s.io", "v1", "apiservices"},
}

// startAsked starts a webhook for each of the rules, with a namespace of its own.
func startAsked(t *testing.T, s *cluster.Server) *asked {
	t.Helper()
	a := &asked{}
	hook := httptest.NewTLSServer(a)
	t.Cleanup(hook.Close)
	ca := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: hook.Certificate().Raw}))
	var b strings.Builder
	b.WriteString("apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingWebhookConfiguration\nmetadata: {name: asked}\nwebhooks:\n")
	for i, rule := range equivalentRules {
		fmt.Fprintf(&b, `- name: r%d.example.com
  clientConfig: {url: "%s/%d", caBundle: %s}
  admissionReviewVersions: [v1]
  sideEffects: None
  matchPolicy: Equivalent
  failurePolicy: Fail
  matchConditions: [{name: mine, expression: 'request.name.startsWith("mine") || request.name.startsWith("v1.mine")'}]
  rules: [{apiGroups: ["%s"], apiVersions: [%s], operations: [CREATE, UPDATE], resources: [%s]}]
`, i, hook.URL, i, ca, rule.group, rule.version, rule.resource)
	}
	apply(t, s, b.String())
	return a
}

// Each server of kube-apiserver knows which of its resources are equivalent, and so does each stage: a webhook with
// the match policy Equivalent is asked for the same requests, in the same form.
func TestEquivalentResources(t *testing.T) {
	t.Parallel()
	p := startPair(t, cluster.Options{})
	const pod = `"spec": {"serviceAccountName": "default", "automountServiceAccountToken": false, "containers": [{"name": "c", "image": "i"}]}`
	requests := []struct{ method, path, body string }{
		{"POST", "/api/v1/namespaces/default/events", `{"metadata": {"name": "mine-a", "namespace": "default"}, "involvedObject": {"namespace": "default"}}`},
		{"POST", "/apis/events.k8s.io/v1/namespaces/default/events", `{"metadata": {"name": "mine-b", "namespace": "default"}, "eventTime": "2026-01-01T00:00:00.000000Z", "reportingController": "a.b/c", "reportingInstance": "i", "action": "a", "reason": "r", "type": "Normal", "regarding": {"namespace": "default"}}`},
		{"POST", "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers", `{"metadata": {"name": "mine"}, "spec": {"maxReplicas": 1, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}}}`},
		{"POST", "/apis/apps/v1/namespaces/default/deployments", `{"metadata": {"name": "mine"}, "spec": {"replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}}`},
		{"PATCH", "/apis/apps/v1/namespaces/default/deployments/mine/scale", `{"spec": {"replicas": 2}}`},
		{"POST", "/api/v1/namespaces/default/replicationcontrollers", `{"metadata": {"name": "mine"}, "spec": {"replicas": 0, "selector": {"a": "b"}, "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}}`},
		{"PATCH", "/api/v1/namespaces/default/replicationcontrollers/mine/scale", `{"spec": {"replicas": 2}}`},
		{"POST", "/api/v1/namespaces/default/pods", `{"metadata": {"name": "mine"}, ` + pod + `}`},
		{"POST", "/api/v1/namespaces/default/pods/mine/eviction", `{"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "mine"}}`},
		{"POST", "/apis/gears.example.com/v1/namespaces/default/gears", `{"apiVersion": "gears.example.com/v1", "kind": "Gear", "metadata": {"name": "mine"}}`},
		{"POST", "/apis/gears.example.com/v2/namespaces/default/gears", `{"apiVersion": "gears.example.com/v2", "kind": "Gear", "metadata": {"name": "mine-too"}}`},
		{"POST", "/apis/gears.example.com/v1/namespaces/default/pods", `{"apiVersion": "gears.example.com/v1", "kind": "GearPod", "metadata": {"name": "mine"}}`},
		{"POST", "/apis/apiregistration.k8s.io/v1/apiservices", `{"metadata": {"name": "v1.mine.example.com"}, "spec": {"group": "mine.example.com", "version": "v1", "groupPriorityMinimum": 1, "versionPriority": 1, "service": {"namespace": "default", "name": "none"}}}`},
		{"POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", `{"metadata": {"name": "mines.example.com"}, "spec": {"group": "example.com", "scope": "Cluster", "names": {"plural": "mines", "kind": "Mine"}, "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]}}`},
	}
	transcripts := map[string][]string{}
	p.each(func(name string, s *cluster.Server) {
		admin := s.Config(cluster.Admin)
		for plural, kind := range map[string]string{"gears": "Gear", "pods": "GearPod"} {
			apply(t, s, strings.NewReplacer("PLURAL", plural, "KIND", kind).Replace(gears))
			eventually(t, plural+" are served", func() bool {
				return do(t, admin, http.MethodGet, "/apis/gears.example.com/v2/"+plural, "").code == 200
			})
		}
		eventually(t, "the service account default", func() bool {
			code := do(t, admin, http.MethodPost, "/api/v1/namespaces/default/serviceaccounts", `{"metadata": {"name": "default"}}`).code
			return code == http.StatusCreated || code == http.StatusConflict
		})
		a := startAsked(t, s)
		eventually(t, "the webhooks are asked", func() bool {
			for _, path := range []string{"/api/v1/namespaces/default/events?dryRun=All", "/apis/gears.example.com/v2/namespaces/default/gears?dryRun=All"} {
				do(t, admin, http.MethodPost, path, strings.ReplaceAll(requests[0].body, "mine-a", "mine-first"))
				do(t, admin, http.MethodPost, path, `{"apiVersion": "gears.example.com/v2", "kind": "Gear", "metadata": {"name": "mine-first"}}`)
			}
			do(t, admin, http.MethodPost, "/apis/apiregistration.k8s.io/v1/apiservices?dryRun=All", strings.ReplaceAll(requests[12].body, "mine.", "mine-first."))
			log := strings.Join(a.take(), "\n")
			return strings.Contains(log, "/0:") && strings.Contains(log, "/8:") && strings.Contains(log, "/11:")
		})
		a.take()
		for _, r := range requests {
			got := do(t, admin, r.method, r.path, r.body, "Content-Type: "+map[string]string{"POST": "application/json", "PATCH": "application/merge-patch+json"}[r.method])
			transcripts[name] = append(transcripts[name], fmt.Sprintf("%s %s: %d", r.method, r.path, got.code))
			if got.code >= 300 {
				t.Errorf("%s: %s %s: %d %s", name, r.method, r.path, got.code, got.body)
			}
			for _, line := range a.take() {
				transcripts[name] = append(transcripts[name], "  "+line)
			}
		}
	})
	if got, want := strings.Join(transcripts["Catena"], "\n"), strings.Join(transcripts["kube-apiserver"], "\n"); got != want {
		t.Errorf("the webhooks are asked\n%s\nwant\n%s", got, want)
	} else if !strings.Contains(want, "map[group:events.k8s.io kind:Event version:v1] of map[group: kind:Event version:v1]") {
		t.Errorf("no request was converted:\n%s", want)
	}
}
