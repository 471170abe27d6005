package system

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/catena-dev/catena/test/internal/cluster"
)

// sessionPolicy has a namespace for each level, and logs all stages of all else.
const sessionPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
rules:
- {level: None, users: ["system:apiserver"]}
- {level: None, namespaces: [none]}
- {level: Metadata, namespaces: [metadata]}
- {level: Request, namespaces: [request], omitStages: [RequestReceived]}
- {level: RequestResponse, namespaces: [unmanaged], omitManagedFields: true, omitStages: [RequestReceived, ResponseStarted]}
- {level: Metadata, resources: [{group: "", resources: [secrets]}]}
- level: RequestResponse
`

// sessionObjects are there before the session. Its two numbers are the ports of a server and of nothing.
const sessionObjects = `
{apiVersion: v1, kind: List, items: [
{apiVersion: v1, kind: Namespace, metadata: {name: none}},
{apiVersion: v1, kind: Namespace, metadata: {name: metadata}},
{apiVersion: v1, kind: Namespace, metadata: {name: request}},
{apiVersion: v1, kind: Namespace, metadata: {name: response, labels: {pod-security.kubernetes.io/audit: restricted}}},
{apiVersion: v1, kind: Namespace, metadata: {name: unmanaged}},
{apiVersion: v1, kind: ServiceAccount, metadata: {name: default, namespace: response}},
{apiVersion: v1, kind: Service, metadata: {name: aborts, namespace: default}, spec: {type: ExternalName, externalName: localhost}},
{apiVersion: apiregistration.k8s.io/v1, kind: APIService, metadata: {name: v1.aborts.example.com}, spec: {
  group: aborts.example.com, version: v1, groupPriorityMinimum: 1000, versionPriority: 15, insecureSkipTLSVerify: true,
  service: {namespace: default, name: aborts, port: %[1]s}}},
{apiVersion: apiregistration.k8s.io/v1, kind: APIService, metadata: {name: v1.absent.example.com}, spec: {
  group: absent.example.com, version: v1, groupPriorityMinimum: 1000, versionPriority: 15, insecureSkipTLSVerify: true,
  service: {namespace: default, name: absent, port: 443}}},
{apiVersion: v1, kind: Node, metadata: {name: refuses}, spec: {}},
{apiVersion: v1, kind: Pod, metadata: {name: pod, namespace: response}, spec: {
  nodeName: refuses, automountServiceAccountToken: false, containers: [{name: c, image: i}]}},
{apiVersion: apps/v1, kind: Deployment, metadata: {name: scaled, namespace: response}, spec: {
  selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}}},
{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: alice, namespace: response},
  rules: [{apiGroups: [""], resources: [configmaps], verbs: [get, list]}]},
{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: alice, namespace: response},
  roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: alice}, subjects: [{kind: User, name: alice}]}
]}
`

const refusingNode = `{"status": {"addresses": [{"type": "InternalIP", "address": "127.0.0.1"}], "daemonEndpoints": {"kubeletEndpoint": {"Port": %s}}}}`

// reviewers makes API servers ask a server about config maps that have a label: to change them, to judge them, and in vain.
const reviewers = `
{apiVersion: v1, kind: List, items: [
{apiVersion: admissionregistration.k8s.io/v1, kind: MutatingWebhookConfiguration, metadata: {name: changes}, webhooks: [
  {name: changes.example.com, clientConfig: {url: "%[1]s/changes", caBundle: %[2]s}, admissionReviewVersions: [v1], sideEffects: None,
   reinvocationPolicy: IfNeeded, objectSelector: {matchLabels: {reviewed: "yes"}}, rules: [{apiGroups: ["*"], apiVersions: ["*"], operations: [CREATE], resources: [configmaps, widgets]}]}]},
{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingWebhookConfiguration, metadata: {name: judges}, webhooks: [
  {name: judges.example.com, clientConfig: {url: "%[1]s/judges", caBundle: %[2]s}, admissionReviewVersions: [v1], sideEffects: None, timeoutSeconds: 30,
   objectSelector: {matchLabels: {reviewed: "yes"}}, rules: [{apiGroups: ["*"], apiVersions: ["*"], operations: [CREATE], resources: [configmaps, widgets]}]},
  {name: fails.example.com, clientConfig: {url: "%[1]s/fails", caBundle: %[2]s}, admissionReviewVersions: [v1], sideEffects: None, failurePolicy: Ignore,
   objectSelector: {matchLabels: {reviewed: "yes"}}, rules: [{apiGroups: ["*"], apiVersions: ["*"], operations: [CREATE], resources: [configmaps, widgets]}]}]}
]}
`

// step is a request of the session.
type step struct {
	name, user, method, path, body string
	header                         []string
	// broken says that the response breaks off.
	broken bool
}

func (s step) as(user string) step          { s.user = user; return s }
func (s step) having(header ...string) step { s.header = header; return s }
func get(name, path string) step            { return step{name: name, method: http.MethodGet, path: path} }
func post(name, path, body string) step {
	return step{name: name, method: http.MethodPost, path: path, body: body}
}
func patch(name, path, kind, body string) step {
	return step{name: name, method: http.MethodPatch, path: path, body: body}.having("Content-Type: application/" + kind)
}
func remove(name, path string) step { return step{name: name, method: http.MethodDelete, path: path} }

// inEveryNamespace are the verbs on config maps, in a namespace.
func inNamespace(ns string) []step {
	list := "/api/v1/namespaces/" + ns + "/configmaps"
	one := list + "/one"
	steps := []step{
		post("create", list, `{"metadata": {"name": "one", "labels": {"a": "ü"}}, "data": {"a": "b"}}`),
		get("get", one), get("list", list), get("watch", list+"?watch=1&timeoutSeconds=1"),
		get("watch of one", list+"?watch=1&timeoutSeconds=1&fieldSelector=metadata.name%3Done&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"),
		{name: "update", method: http.MethodPut, path: one, body: `{"metadata": {"name": "one"}, "data": {"a": "c"}}`},
		patch("merge patch", one, "merge-patch+json", `{"data": {"b": "c"}}`),
		patch("JSON patch", one, "json-patch+json", `[{"op": "add", "path": "/data/d", "value": "e"}]`),
		patch("strategic patch", one, "strategic-merge-patch+json", `{"data": {"f": "g"}}`),
		patch("apply", one+"?fieldManager=m&force=true", "apply-patch+yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: one}\ndata: {h: i}\n"),
		post("dry run", list+"?dryRun=All", `{"metadata": {"generateName": "generated-"}}`),
		post("conflict", list, `{"metadata": {"name": "one"}}`), post("invalid", list, `{"metadata": {"name": "Not A Name"}}`),
		{name: "delete with options", method: http.MethodDelete, path: one, body: `{"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"}`},
		post("create again", list, `{"metadata": {"name": "one", "labels": {"a": "b"}}}`),
		remove("delete collection", list+"?labelSelector=a%3Db"), get("get of nothing", one),
	}
	for i := range steps {
		steps[i].name = ns + ": " + steps[i].name
	}
	return steps
}

// session is the whole of it.
func session() []step {
	const (
		cms  = "/api/v1/namespaces/response/configmaps"
		crs  = "/apis/test.example.com/v1/namespaces/response/widgets"
		pods = "/api/v1/namespaces/response/pods"
		cr   = `"apiVersion": "test.example.com/v1", "kind": "Widget", `
		pod  = `"spec": {"automountServiceAccountToken": false, "containers": [{"name": "c", "image": "i", "securityContext": {"privileged": true}}]}`
	)
	var steps []step
	for _, ns := range []string{"none", "metadata", "request", "response", "unmanaged"} {
		steps = append(steps, inNamespace(ns)...)
	}
	return append(steps,
		post("custom create", crs, `{`+cr+`"metadata": {"name": "one"}, "spec": {}}`), get("custom get", crs+"/one"), get("custom list", crs),
		get("custom watch", crs+"?watch=1&timeoutSeconds=1"), post("custom invalid", crs, `{`+cr+`"metadata": {"name": "b"}, "spec": {"size": 0}}`),
		patch("custom status", crs+"/one/status", "merge-patch+json", `{"status": {"a": "ö"}}`),
		patch("custom apply", crs+"/one?fieldManager=m", "apply-patch+yaml", `{`+cr+`"metadata": {"name": "one"}, "spec": {"size": 9}}`),
		step{name: "custom update", method: http.MethodPut, path: crs + "/one", body: `{` + cr + `"metadata": {"name": "one"}, "spec": {"size": 8}}`},
		remove("custom delete", crs+"/one"), remove("custom delete collection", crs), get("custom list as YAML", crs).having("Accept: application/yaml"),
		get("custom list as a table", crs).having("Accept: application/json;as=Table;g=meta.k8s.io;v=v1"),

		get("nothing", "/nothing"), get("no group", "/apis/none.example.com/v1/things"), get("no resource", "/api/v1/namespaces/response/things"),
		get("no namespace", "/api/v1/namespaces/absent/configmaps"), post("create in no namespace", "/api/v1/namespaces/absent/configmaps", `{"metadata": {"name": "a"}}`),
		get("forbidden", cms).as(cluster.Bob), post("forbidden create", cms, `{"metadata": {"name": "a"}}`).as(cluster.Alice), get("allowed by RBAC", cms).as(cluster.Alice),
		get("unknown token", cms).as("mallory"), get("anonymous", cms).as(""), get("anonymous version", "/version").as(""), get("anonymous nothing", "/nothing").as(""),
		get("impersonated", cms).having("Impersonate-User: zoë", "Impersonate-Group: odd group", "Impersonate-Extra-A: b", "Impersonate-Uid: u"),
		get("impersonated administrator", cms).having("Impersonate-User: root", "Impersonate-Group: system:masters"),
		get("impersonated service account", cms).having("Impersonate-User: system:serviceaccount:response:default"),
		get("forbidden impersonation", cms).as(cluster.Bob).having("Impersonate-User: admin"),
		get("impersonation of no user", cms).having("Impersonate-Group: a"),
		get("forwarded", cms).having("X-Forwarded-For: 198.51.100.7, 198.51.100.8", "X-Real-Ip: 203.0.113.9"), get("forwarded by a stranger", cms).having("X-Forwarded-For: nonsense"),
		get("user agent", cms).having("User-Agent: "+strings.Repeat("a", 1200)),

		post("secret", "/api/v1/namespaces/response/secrets", `{"metadata": {"name": "one"}, "stringData": {"a": "hush"}}`), get("secrets", "/api/v1/namespaces/response/secrets"),
		post("token", "/api/v1/namespaces/response/serviceaccounts/default/token", `{"spec": {"expirationSeconds": 3600}}`),
		post("token of nothing", "/api/v1/namespaces/response/serviceaccounts/none/token", `{"spec": {}}`),
		post("token review", "/apis/authentication.k8s.io/v1/tokenreviews", `{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": "alice-token"}}`),
		post("self review", "/apis/authentication.k8s.io/v1/selfsubjectreviews", `{"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}`),
		post("access review", "/apis/authorization.k8s.io/v1/subjectaccessreviews", `{"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": {"user": "alice", "resourceAttributes": {"namespace": "response", "verb": "get", "resource": "pods"}}}`),
		post("rules review", "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", `{"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "spec": {"namespace": "response"}}`).as(cluster.Bob),

		post("privileged pod", pods, `{"metadata": {"name": "two"}, `+pod+`}`), get("pods as a table", pods).having("Accept: application/json;as=Table;g=meta.k8s.io;v=v1"),
		post("binding", pods+"/two/binding", `{"target": {"kind": "Node", "name": "refuses"}}`), patch("pod status", pods+"/two/status", "strategic-merge-patch+json", `{"status": {"phase": "Running"}}`),
		post("eviction of nothing", pods+"/none/eviction", `{"metadata": {"name": "none"}}`), post("eviction in a dry run", pods+"/two/eviction?dryRun=All", `{"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "two"}}`),
		post("eviction", pods+"/two/eviction", `{"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "two"}}`), remove("delete at once", pods+"/two?gracePeriodSeconds=0"),
		get("log", pods+"/pod/log"), post("exec", pods+"/pod/exec?command=a&stdout=true", "").having("Connection: Upgrade", "Upgrade: SPDY/3.1"), get("exec without upgrade", pods+"/pod/exec?command=a&stdout=true"),
		get("proxy to a pod", pods+"/pod/proxy/a"), get("proxy to a node", "/api/v1/nodes/refuses/proxy/a"), get("proxy to a service", "/api/v1/namespaces/default/services/kubernetes/proxy/").as(cluster.Bob),
		get("scale", "/apis/apps/v1/namespaces/response/deployments/scaled/scale"), patch("scale up", "/apis/apps/v1/namespaces/response/deployments/scaled/scale", "merge-patch+json", `{"spec": {"replicas": 3}}`),
		step{name: "scale by update", method: http.MethodPut, path: "/apis/apps/v1/namespaces/response/deployments/scaled/scale", body: `{"metadata": {"name": "scaled", "namespace": "response"}, "spec": {"replicas": 2}}`},
		get("deprecated", "/api/v1/componentstatuses/none"), get("deprecated list", "/api/v1/namespaces/response/endpoints"),
		step{name: "finalize", method: http.MethodPut, path: "/api/v1/namespaces/unmanaged/finalize", body: `{"metadata": {"name": "unmanaged"}, "spec": {"finalizers": ["kubernetes"]}}`},

		get("unavailable", "/apis/absent.example.com/v1/things"), get("unavailable discovery", "/apis/absent.example.com/v1"), post("unavailable create", "/apis/absent.example.com/v1/things", `{"a": "b"}`),
		get("aggregated", "/apis/aborts.example.com/v1/things/fine"), post("aggregated create", "/apis/aborts.example.com/v1/things", `{"a": "b"}`),
		step{name: "aborted", method: http.MethodGet, path: "/apis/aborts.example.com/v1/things/aborts", broken: true},
		get("aggregated watch", "/apis/aborts.example.com/v1/things?watch=1"),

		post("reviewed", cms, `{"metadata": {"name": "reviewed", "labels": {"reviewed": "yes"}}}`), post("refused", cms, `{"metadata": {"name": "refused", "labels": {"reviewed": "yes", "refused": "yes"}}}`),
		post("slowly reviewed", cms, `{"metadata": {"name": "slow", "labels": {"reviewed": "yes", "slow": "yes"}}}`),
		post("slowly reviewed and large", cms, `{"metadata": {"name": "slow-and-large", "labels": {"reviewed": "yes", "slow": "yes"}}, "data": {"a": "`+strings.Repeat("x", 9000)+`"}}`),
		post("custom slowly reviewed", crs, `{`+cr+`"metadata": {"name": "slow", "labels": {"reviewed": "yes", "slow": "yes"}}}`),
		post("custom reviewed", crs, `{`+cr+`"metadata": {"name": "reviewed", "labels": {"reviewed": "yes"}}}`), post("custom refused", crs, `{`+cr+`"metadata": {"name": "refused", "labels": {"reviewed": "yes", "refused": "yes"}}}`),

		get("live", "/livez"), get("ready", "/readyz/ping"), get("health of nothing", "/healthz/nothing"), get("version", "/version"), get("index", "/"), get("groups", "/apis"), get("OpenAPI", "/openapi/v3"),
		get("aggregated discovery", "/apis").having("Accept: application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"), get("core", "/api"), get("core v1", "/api/v1"), get("metrics", "/metrics/slis"),
		get("forbidden metrics", "/metrics").as(cluster.Bob), get("log files", "/logs"), get("issuer", "/.well-known/openid-configuration").as(cluster.Bob), get("keys", "/openid/v1/jwks"),

		post("not JSON", cms, `{"metadata"`), post("wrong type", cms, `{"metadata": 7}`), post("wrong kind", cms, `{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}}`),
		post("unknown media type", cms, "a").having("Content-Type: text/odd"), get("not acceptable", cms).having("Accept: text/odd"), patch("unknown patch", cms+"/reviewed", "odd", "{}"),
		post("strict", cms+"?fieldValidation=Strict", `{"metadata": {"name": "a"}, "odd": 1}`), post("unknown parameter", cms+"?dryRun=Some", `{"metadata": {"name": "a"}}`),
		step{name: "method", method: http.MethodPut, path: cms, body: "{}"}, step{name: "method of no resource", method: "ODD", path: "/version"}, step{name: "head", method: http.MethodHead, path: cms},
		step{name: "options", method: http.MethodOptions, path: cms}, get("old resource version", cms+"?watch=1&resourceVersion=1&timeoutSeconds=1"), get("bad selector", cms+"?fieldSelector=a%3Db"),
		get("limited", cms+"?limit=1"), get("bad timeout", cms+"?timeout=nonsense"), get("escaped", "/api/v1/namespaces/response/configmaps/a%2Fb"), get("double slash", "/api/v1//namespaces"),
		post("large", cms, `{"metadata": {"name": "large"}, "data": {"a": "`+strings.Repeat("x", 200_000)+`"}}`), post("too large", cms, `{"metadata": {"name": "huge"}, "data": {"a": "`+strings.Repeat("x", 4<<20)+`"}}`),
		get("end", "/version"))
}

// auditSinks are the backends of the audit log of one server.
type auditSinks struct {
	log string

	mu     sync.Mutex
	pushed []map[string]any
}

// The events of a session equal kube-apiserver's: each level and stage, in the log and at the webhook, both of which get large ones truncated.
func TestAuditOfSession(t *testing.T) {
	t.Parallel()
	sinks := map[string]*auditSinks{}
	b := startBeside(t, func(name, dir string) map[string]string {
		s := &auditSinks{log: filepath.Join(dir, "audit.log")}
		sinks[name] = s
		return map[string]string{
			"audit-policy-file": write(t, "policy.yaml", sessionPolicy), "audit-log-path": s.log,
			"audit-log-truncate-enabled": "true", "audit-log-truncate-max-event-size": "24000", "audit-log-truncate-max-batch-size": "100000",
			"audit-webhook-config-file": s.serve(t), "audit-webhook-batch-max-wait": "100ms",
			"audit-webhook-truncate-enabled": "true", "audit-webhook-truncate-max-event-size": "20000", "audit-webhook-truncate-max-batch-size": "100000",
		}
	})
	prepareSession(t, b)
	prefix := auditID("session")
	steps := session()
	t.Run("session", func(t *testing.T) {
		for name, s := range b.both() {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				logged := map[string]string{}
				for i, step := range steps {
					id := fmt.Sprintf("%s-%d", prefix, i)
					step.send(t, s, id)
					if !strings.HasPrefix(step.name, "none: ") {
						logged[id] = step.name
					}
				}
				sinks[name].await(t, logged)
			})
		}
	})
	for backend, events := range map[string]func(*auditSinks) []map[string]any{
		"log": func(s *auditSinks) []map[string]any { return s.logged(t) }, "webhook": (*auditSinks).delivered,
	} {
		want, got := byID(events(sinks["kube-apiserver"])), byID(events(sinks["catena"]))
		if !slices.ContainsFunc(events(sinks["catena"]), isTruncated) {
			t.Errorf("%s: no event is truncated", backend)
		}
		for i, step := range steps {
			id := fmt.Sprintf("%s-%d", prefix, i)
			if len(want[id]) == 0 != strings.HasPrefix(step.name, "none: ") {
				t.Errorf("%s: %s: kube-apiserver has %d events", backend, step.name, len(want[id]))
			}
			if diff := cmp.Diff(withoutIDs(want[id], step), withoutIDs(got[id], step)); diff != "" {
				t.Errorf("%s: %s: Catena's events (+) are not kube-apiserver's (-):\n%s", backend, step.name, diff)
			}
		}
	}
}

func isTruncated(event map[string]any) bool {
	annotations, _ := event["annotations"].(map[string]any)
	return annotations["audit.k8s.io/truncated"] == "true"
}

// prepareSession makes what the session needs.
func prepareSession(t *testing.T, b *beside) {
	t.Helper()
	aborts, hooks, closed := abortingServer(t), reviewingServer(t), closedPort(t)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: hooks.Certificate().Raw})
	for _, s := range b.both() {
		apply(t, s.Server, fmt.Sprintf(sessionObjects, strings.TrimPrefix(aborts.URL, "https://127.0.0.1:")))
		apply(t, s.Server, widgets)
		apply(t, s.Server, fmt.Sprintf(reviewers, hooks.URL, base64.StdEncoding.EncodeToString(ca)))
		do(t, s.Config(cluster.Admin), http.MethodPatch, "/api/v1/nodes/refuses/status", fmt.Sprintf(refusingNode, closed), "Content-Type: application/merge-patch+json")
		awaitSession(t, s.Server)
	}
}

// withoutIDs are events without what differs between two servers, and without where the time went but in requests that are slow
// with certainty.
func withoutIDs(events []map[string]any, s step) []any {
	var all []any
	for _, e := range events {
		e, _ := sameEverywhere(e).(map[string]any)
		annotations, _ := e["annotations"].(map[string]any)
		for key := range annotations {
			if strings.HasPrefix(key, latencyAnnotation) {
				annotations[key] = "DURATION"
			}
		}
		if !strings.Contains(s.name, "slowly") {
			maps.DeleteFunc(annotations, func(key string, _ any) bool { return strings.HasPrefix(key, latencyAnnotation) })
		}
		if len(annotations) == 0 {
			delete(e, "annotations")
		}
		all = append(all, e)
	}
	return all
}

// isLast reports whether an event is the last one of its request. One that is refused before it is known who makes it has
// no other than ResponseStarted.
func isLast(e map[string]any) bool {
	status, _ := e["responseStatus"].(map[string]any)
	return e["stage"] == "ResponseComplete" || e["stage"] == "Panic" || status["code"] == float64(http.StatusUnauthorized) || status["code"] == float64(http.StatusBadRequest)
}

func byID(events []map[string]any) map[string][]map[string]any {
	all := map[string][]map[string]any{}
	for _, e := range events {
		id, _ := e["auditID"].(string)
		all[id] = append(all[id], e)
	}
	return all
}

// send makes the request, and reads the response.
func (s step) send(t *testing.T, k *cluster.KubeAPIServer, id string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), s.method, k.URL+s.path, strings.NewReader(s.body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = headerOf(append(slices.Clone(s.header), "Audit-ID: "+id))
	if req.Header.Get("Content-Type") == "" && s.body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	config := k.Config(cluster.Admin)
	switch {
	case s.user != "":
		config = k.Config(s.user)
	case strings.HasPrefix(s.name, "anonymous"):
		config.BearerToken = ""
	}
	if req.Header.Get("Upgrade") != "" {
		config.NextProtos = []string{"http/1.1"}
	}
	resp, err := httpClient(t, config).Do(req)
	if err == nil {
		_, err = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
	if (err != nil) != s.broken {
		t.Errorf("%s: %s: %v", k.Name, s.name, err)
	}
}

// serve takes the events of the webhook backend, and returns the kubeconfig that leads there.
func (a *auditSinks) serve(t *testing.T) (kubeconfig string) {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var list struct{ Items []map[string]any }
		if err := json.NewDecoder(r.Body).Decode(&list); err == nil {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.pushed = append(a.pushed, list.Items...)
		}
	}))
	t.Cleanup(s.Close)
	return write(t, "webhook.yaml", fmt.Sprintf("{apiVersion: v1, kind: Config, clusters: [{name: c, cluster: {server: %q}}], contexts: [{name: c, context: {cluster: c}}], current-context: c}", s.URL))
}

// delivered are the events that the webhook has got, each request's in the order of its stages: batches may overtake each other.
func (a *auditSinks) delivered() []map[string]any {
	a.mu.Lock()
	defer a.mu.Unlock()
	order := []any{"RequestReceived", "ResponseStarted", "ResponseComplete", "Panic"}
	return slices.SortedStableFunc(slices.Values(a.pushed), func(x, y map[string]any) int {
		return slices.Index(order, x["stage"]) - slices.Index(order, y["stage"])
	})
}

func (a *auditSinks) logged(t *testing.T) (events []map[string]any) {
	t.Helper()
	text, err := os.ReadFile(a.log)
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		if bytes.HasSuffix(line, []byte("\n")) {
			events = append(events, decoded(t, line))
		}
	}
	return events
}

// await waits until both backends have the last event of each of these requests.
func (a *auditSinks) await(t *testing.T, ids map[string]string) {
	t.Helper()
	missing := func() (names []string) {
		for _, events := range []map[string][]map[string]any{byID(a.logged(t)), byID(a.delivered())} {
			for id, name := range ids {
				if !slices.ContainsFunc(events[id], isLast) {
					names = append(names, name)
				}
			}
		}
		return names
	}
	eventually(t, "both backends have all events", func() bool { return len(missing()) == 0 }, func() string { return fmt.Sprint(missing()) })
}

// abortingServer is an aggregated API server that breaks off some responses.
func abortingServer(t *testing.T) *httptest.Server {
	t.Helper()
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "aborts.example.com/v1", "resources": []}`)
		if strings.HasSuffix(r.URL.Path, "/aborts") {
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

// reviewingServer is a server of admission webhooks, with annotations for the audit log.
func reviewingServer(t *testing.T) *httptest.Server {
	t.Helper()
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review struct {
			Request struct {
				UID    string
				Object struct {
					Metadata struct{ Labels map[string]string }
				}
			}
		}
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		labels := review.Request.Object.Metadata.Labels
		response := map[string]any{"uid": review.Request.UID, "allowed": true, "auditAnnotations": map[string]string{"seen": "yés"}, "warnings": []string{"think twice about what " + r.URL.Path[1:]}}
		switch {
		case r.URL.Path == "/fails":
			http.Error(w, "no", http.StatusInternalServerError)
			return
		case r.URL.Path == "/changes":
			response["patchType"] = "JSONPatch"
			response["patch"] = []byte(`[{"op": "add", "path": "/metadata/labels/changed", "value": "yes"}]`)
		case labels["refused"] != "":
			response["allowed"], response["status"] = false, map[string]any{"message": "never", "code": 418}
		case labels["slow"] != "":
			time.Sleep(webhookDelay)
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
	}))
	t.Cleanup(s.Close)
	return s
}

// closedPort is a port on which no process listens.
func closedPort(t *testing.T) string {
	t.Helper()
	port, err := cluster.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// awaitSession waits until what the session needs is in force.
func awaitSession(t *testing.T, s *cluster.Server) {
	t.Helper()
	admin := s.Config(cluster.Admin)
	for path, want := range map[string]int{"/apis/aborts.example.com/v1/things": 200, "/apis/absent.example.com/v1/things": 503, "/apis/test.example.com/v1/namespaces/response/widgets": 200} {
		eventually(t, fmt.Sprintf("%s is %d", path, want), func() bool { return do(t, admin, http.MethodGet, path, "").code == want })
	}
	for path, kind := range map[string]string{
		"/api/v1/namespaces/response/configmaps":                `"apiVersion": "v1", "kind": "ConfigMap"`,
		"/apis/test.example.com/v1/namespaces/response/widgets": `"apiVersion": "test.example.com/v1", "kind": "Widget"`,
	} {
		eventually(t, "the webhooks review "+path, func() bool {
			r := do(t, admin, http.MethodPost, path+"?dryRun=All", `{`+kind+`, "metadata": {"name": "x", "labels": {"reviewed": "yes"}}}`)
			return len(r.header.Values("Warning")) == 2 && strings.Contains(r.body, `"changed":"yes"`)
		})
	}
	eventually(t, "alice may look", func() bool {
		return do(t, s.Config(cluster.Alice), http.MethodGet, "/api/v1/namespaces/response/configmaps", "").code == 200
	})
}
