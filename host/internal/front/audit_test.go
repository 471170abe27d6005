package front_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/catena-dev/catena/host/internal/bounds"
	"github.com/catena-dev/catena/host/internal/relay"
	"github.com/catena-dev/catena/sdk/stagev1"
)

const auditPolicy = `
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  nonResourceURLs: ["/readyz", "/livez"]
- level: Metadata
  resources: [{group: "", resources: ["secrets"]}]
- level: RequestResponse
  omitManagedFields: true
  users: ["kube-apiserver-kubelet-client"]
- level: RequestResponse
`

// event is a line of the audit log.
type event struct {
	Level, Stage, AuditID string
	Annotations           map[string]string
	ObjectRef             map[string]string
	ResponseStatus        struct {
		Code    int
		Reason  string
		Message string
	}
	RequestObject, ResponseObject map[string]any
}

func TestAudit(t *testing.T) {
	t.Parallel()
	log := filepath.Join(t.TempDir(), "audit.log")
	sent := `{"annotations":{"example.com/why":"b\u00e9cause"},` +
		`"objectRef":{"resource":"x","name":"from-body","uid":"u-1"},` +
		`"requestObject":{"kind":"Thing"},"responseObject":{"kind":"Thing","n":1},` +
		`"responseStatus":{"reason":"Because","message":"sent","code":201}}`
	from := relay.Sender{Stage: "core", Serves: true, Kubernetes: true}
	levels := make(chan string, 1)
	var s *server
	flags := open(t)
	flags["audit-policy-file"] = []string{writeFile(t, "policy.yaml", auditPolicy)}
	flags["audit-log-path"] = []string{log}
	s = start(t, flags, func(w http.ResponseWriter, r *http.Request) {
		levels <- propagated(t, s, r).Get(stagev1.HeaderAuditLevel)
		s.Propagator().ResponseHeader(r, from, stagev1.HeaderLatency, "etcd=600000000,no-such=1,,x")
		s.Propagator().ResponseHeader(r, from, stagev1.HeaderAudit, sent)
		w.WriteHeader(http.StatusCreated)
	})
	admin := s.admin(t)

	admin.do(t, http.MethodPost, "/api/v1/namespaces/a/things", "Audit-ID: full")
	if level := receive(t, levels); level != "RequestResponse;omitManagedFields" {
		t.Errorf("stage gets the level %q", level)
	}
	e := waitEvent(t, log, "full")
	if e.Annotations["example.com/why"] != "bécause" {
		t.Errorf("annotations are %v", e.Annotations)
	}
	if e.ObjectRef["name"] != "from-body" || e.ObjectRef["uid"] != "u-1" || e.ObjectRef["resource"] != "things" || e.ObjectRef["namespace"] != "a" {
		t.Errorf("reference is %v", e.ObjectRef)
	}
	if e.ResponseStatus.Code != 201 || e.ResponseStatus.Reason != "Because" || e.ResponseStatus.Message != "sent" {
		t.Errorf("status is %+v", e.ResponseStatus)
	}
	if e.RequestObject["kind"] != "Thing" || e.ResponseObject["n"] != 1.0 {
		t.Errorf("objects are %v and %v", e.RequestObject, e.ResponseObject)
	}

	admin.do(t, http.MethodPost, "/api/v1/namespaces/a/secrets", "Audit-ID: metadata")
	if level := receive(t, levels); level != "Metadata" {
		t.Errorf("stage gets the level %q", level)
	}
	if e := waitEvent(t, log, "metadata"); e.RequestObject != nil || e.ResponseObject != nil || e.ObjectRef["name"] != "from-body" {
		t.Errorf("event at level Metadata is %+v", e)
	}

	// The policy is that of the user who sends the request, not of the impersonated one.
	admin.do(t, http.MethodPost, "/api/v1/namespaces/a/things", "Audit-ID: other", "Impersonate-User: bob")
	if level := receive(t, levels); level != "RequestResponse;omitManagedFields" {
		t.Errorf("stage gets the level %q", level)
	}
	s.client(t).do(t, http.MethodPost, "/api/v1/namespaces/a/things", "Audit-ID: anonymous")
	if level := receive(t, levels); level != "RequestResponse" {
		t.Errorf("stage gets the level %q", level)
	}

	// A stage that does not serve the request says nothing of it but in its own name.
	from = relay.Sender{Stage: "mid", Kubernetes: true}
	sent = `{"annotations":{"mid.stage.catena.dev/a":"1","rewrite.catena.dev/core":"forged","pod-security.kubernetes.io/enforce-policy":"forged"},` +
		`"objectRef":{"name":"forged"},"requestObject":{"forged":1},"responseObject":{"forged":1},"responseStatus":{"message":"forged","reason":"forged","code":418}}`
	admin.do(t, http.MethodPost, "/api/v1/namespaces/a/things", "Audit-ID: declined")
	receive(t, levels)
	e = waitEvent(t, log, "declined")
	if text, err := json.Marshal(e); err != nil || strings.Contains(string(text), "forged") || e.ResponseStatus.Code != 201 || e.Annotations["mid.stage.catena.dev/a"] != "1" || len(e.Annotations) != 3 {
		t.Errorf("event of a request that the stage does not serve: %s, %v", text, err)
	}
	from.Serves = true

	// The annotations of a stage without paths of Kubernetes have a bound, however many headers they come in.
	from = relay.Sender{Stage: "other", Serves: true}
	for n, id := range []string{"small", "large"} {
		sent = fmt.Sprintf(`{"annotations":{"example.com/a":%q,"example.com/b":"1"}}`, strings.Repeat("a", n*bounds.AuditAnnotations))
		admin.do(t, http.MethodPost, "/api/v1/namespaces/a/things", "Audit-ID: "+id)
		receive(t, levels)
		annotations := waitEvent(t, log, id).Annotations
		if _, ok := annotations["example.com/a"]; ok != (n == 0) || annotations["example.com/b"] != "1" && n == 0 || len(fmt.Sprint(annotations)) > 1000 {
			t.Errorf("%s: %d bytes of annotations, with the first %t", id, len(fmt.Sprint(annotations)), ok)
		}
	}

	sent = "}"
	admin.do(t, http.MethodPost, "/api/v1/namespaces/a/things", "Audit-ID: malformed")
	receive(t, levels)
	if e := waitEvent(t, log, "malformed"); e.ResponseStatus.Code != 201 {
		t.Errorf("event after a malformed header is %+v", e)
	}
}

func waitEvent(t *testing.T, log, id string) event {
	t.Helper()
	var found event
	eventually(t, "event "+id, func() bool {
		data, _ := os.ReadFile(log)
		for _, line := range strings.Split(string(data), "\n") {
			var e event
			if json.Unmarshal([]byte(line), &e) == nil && e.AuditID == id && e.Stage == "ResponseComplete" {
				found = e
				return true
			}
		}
		return false
	}, func() string { data, _ := os.ReadFile(log); return string(data) })
	return found
}

func receive[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(deadline):
		t.Fatal("the stage got no request")
		panic("unreachable")
	}
}
