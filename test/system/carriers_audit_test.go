package system

import (
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/catena-dev/catena/test/internal/cluster"
)

// notes is an admission policy that writes into the audit log and warns.
const notes = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: notes}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: ["", test.example.com], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [configmaps, widgets]}
  matchConditions: [{name: noted, expression: "has(object.metadata.labels) && 'noted' in object.metadata.labels"}]
  validations: [{expression: "object.metadata.labels['noted'] != 'badly'", message: "badly nöted"}]
  auditAnnotations: [{key: note, valueExpression: "'nöte: ' + object.metadata.labels['noted']"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: notes}
spec: {policyName: notes, validationActions: [Warn, Audit]}
`

// The audit log has what kube-apiserver's has: objects, references, statuses and the
// annotations of authorization and admission, for built-in and for custom resources.
func TestCarriedAudit(t *testing.T) {
	t.Parallel()
	l := theLong(t)
	reference, err := kubeAPIServer()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range []*audited{l.audited(), reference} {
		apply(t, a.Server, widgets)
		apply(t, a.Server, notes)
		awaitNotes(t, a)
	}
	const (
		cms = "/api/v1/namespaces/default/configmaps"
		crs = "/apis/test.example.com/v1/namespaces/default/widgets"
		cr  = `"apiVersion": "test.example.com/v1", "kind": "Widget", `
	)
	ids := map[string]string{}
	for _, r := range []struct {
		name, method, path, body string
		header                   []string
	}{
		{"create", http.MethodPost, cms, `{"metadata": {"name": "audited", "labels": {"noted": "well"}}, "data": {"a": "ü"}}`, nil},
		{"create that fails", http.MethodPost, cms, `{"metadata": {"name": "Not A Name"}}`, nil},
		{"create of what exists", http.MethodPost, cms, `{"metadata": {"name": "audited"}}`, nil},
		{"create of what is no object", http.MethodPost, cms, `{"metadata": 7}`, nil},
		{"create with a generated name", http.MethodPost, cms + "?dryRun=All", `{"metadata": {"generateName": "audited-"}}`, nil},
		{"policy that warns", http.MethodPost, cms + "?dryRun=All", `{"metadata": {"name": "warned", "labels": {"noted": "badly"}}}`, nil},
		{"get", http.MethodGet, cms + "/audited", "", nil},
		{"get of nothing", http.MethodGet, cms + "/nothing", "", nil},
		{"list", http.MethodGet, cms + "?fieldSelector=metadata.name%3Daudited", "", nil},
		{"table", http.MethodGet, cms + "/audited", "", []string{"Accept: application/json;as=Table;g=meta.k8s.io;v=v1"}},
		{"merge patch", http.MethodPatch, cms + "/audited", `{"data": {"b": "c"}}`, []string{"Content-Type: application/merge-patch+json"}},
		{"JSON patch", http.MethodPatch, cms + "/audited", `[{"op": "add", "path": "/data/d", "value": "e"}]`, []string{"Content-Type: application/json-patch+json"}},
		{"update with a conflict", http.MethodPut, cms + "/audited", `{"metadata": {"name": "audited", "resourceVersion": "1"}}`, nil},
		{"impersonation", http.MethodGet, cms + "/audited", "", []string{"Impersonate-User: zoë", "Impersonate-Group: odd group", "Impersonate-Extra-A: b"}},
		{"delete", http.MethodDelete, cms + "/audited", "", nil},
		{"delete of many", http.MethodDelete, cms + "?labelSelector=no%3Dsuch", "", nil},
		{"secret", http.MethodPost, "/api/v1/namespaces/default/secrets?dryRun=All", `{"metadata": {"name": "audited"}, "stringData": {"a": "hush"}}`, nil},
		{"review", http.MethodPost, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", `{"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": {"nonResourceAttributes": {"path": "/", "verb": "get"}}}`, nil},
		{"scale", http.MethodGet, "/apis/apps/v1/namespaces/default/deployments/none/scale", "", nil},
		{"no resource", http.MethodGet, "/api/v1", "", nil},
		{"nothing at all", http.MethodGet, "/nothing", "", nil},
		{"custom create", http.MethodPost, crs, `{` + cr + `"metadata": {"name": "audited", "labels": {"noted": "well"}}, "spec": {}}`, nil},
		{"custom create that fails", http.MethodPost, crs, `{` + cr + `"metadata": {"name": "b"}, "spec": {"size": 0}}`, nil},
		{"custom policy that warns", http.MethodPost, crs + "?dryRun=All", `{` + cr + `"metadata": {"name": "warned", "labels": {"noted": "badly"}}}`, nil},
		{"custom list", http.MethodGet, crs + "?fieldSelector=metadata.name%3Daudited", "", nil},
		{"custom patch", http.MethodPatch, crs + "/audited/status", `{"status": {"a": "ö"}}`, []string{"Content-Type: application/merge-patch+json"}},
		{"custom apply", http.MethodPatch, crs + "/audited?fieldManager=m", `{` + cr + `"metadata": {"name": "audited"}, "spec": {"size": 9}}`, []string{"Content-Type: application/apply-patch+yaml"}},
		{"custom delete", http.MethodDelete, crs + "/audited", "", nil},
	} {
		id := auditID(r.name)
		ids[r.name] = id
		var events []event
		for _, a := range []*audited{reference, l.audited()} {
			do(t, a.Config(cluster.Admin), r.method, r.path, r.body, append(r.header, "Audit-ID: "+id)...)
			events = append(events, normal(a.auditEvent(t, id)))
		}
		if diff := cmp.Diff(events[0], events[1]); diff != "" {
			t.Errorf("%s: Catena's event (+) is not kube-apiserver's (-):\n%s", r.name, diff)
		}
	}
	e := l.audited().auditEvent(t, ids["custom create"])
	if e.Annotations["notes/note"] != "nöte: well" || kind(e.RequestObject) != "Widget" || kind(e.ResponseObject) != "Widget" || e.ObjectRef["name"] != "audited" {
		t.Errorf("the event of a custom resource is %+v", e)
	}
}

// awaitNotes waits until the policy and the definition are in force.
func awaitNotes(t *testing.T, a *audited) {
	t.Helper()
	for path, kind := range map[string]string{
		"/api/v1/namespaces/default/configmaps":                `"apiVersion": "v1", "kind": "ConfigMap"`,
		"/apis/test.example.com/v1/namespaces/default/widgets": `"apiVersion": "test.example.com/v1", "kind": "Widget"`,
	} {
		eventually(t, "the policy is in force at "+path, func() bool {
			r := do(t, a.Config(cluster.Admin), http.MethodPost, path+"?dryRun=All", `{`+kind+`, "metadata": {"name": "x", "labels": {"noted": "badly"}}}`)
			return strings.Contains(strings.Join(r.header.Values("Warning"), ""), "nöted")
		})
	}
}

// latencyAnnotation begins what only slow requests have.
const latencyAnnotation = "apiserver.latency.k8s.io/"

// normal is an event without what differs between two servers.
func normal(e event) event {
	scrub(e.RequestObject)
	scrub(e.ResponseObject)
	for _, key := range []string{"uid", "resourceVersion"} {
		delete(e.ObjectRef, key)
	}
	delete(e.ResponseStatus, "metadata")
	scrub(e.ResponseStatus)
	maps.DeleteFunc(e.Annotations, func(key, _ string) bool { return strings.HasPrefix(key, latencyAnnotation) })
	return e
}

// scrub removes ids, times and generated names.
func scrub(value any) {
	switch v := value.(type) {
	case map[string]any:
		for _, key := range []string{"uid", "resourceVersion", "creationTimestamp", "time", "selfLink"} {
			delete(v, key)
		}
		if _, ok := v["generateName"]; ok {
			delete(v, "name")
		}
		if cells, ok := v["cells"].([]any); ok { // of a table: the last one is the age
			v["cells"] = cells[:len(cells)-1]
		}
		for _, inner := range v {
			scrub(inner)
		}
	case []any:
		for _, inner := range v {
			scrub(inner)
		}
	}
}

// Where the time of a slow request went is in the audit log.
func TestCarriedLatency(t *testing.T) {
	t.Parallel()
	l := theLong(t)
	hook := startWebhook(t)
	apply(t, l.Server, widgets)
	apply(t, l.Server, hook.configuration())
	for path, kind := range map[string]string{
		"/api/v1/namespaces/default/configmaps":                `"apiVersion": "v1", "kind": "ConfigMap"`,
		"/apis/test.example.com/v1/namespaces/default/widgets": `"apiVersion": "test.example.com/v1", "kind": "Widget"`,
	} {
		body := fmt.Sprintf(`{%s, "metadata": {"name": "slow", "labels": {"slow": "yes"}}}`, kind)
		var id string
		eventually(t, "the webhook is asked about "+path, func() bool {
			before := hook.asked.Load()
			id = do(t, l.Config(cluster.Admin), http.MethodPost, path+"?dryRun=All", body).header.Get("Audit-Id")
			return hook.asked.Load() > before
		})
		e := l.audited().auditEvent(t, id)
		for _, name := range []string{"validating-webhook", "total"} {
			if e.Annotations[latencyAnnotation+name] == "" {
				t.Errorf("%s: no latency %q in %v", path, name, e.Annotations)
			}
		}
	}
}
