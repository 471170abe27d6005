package system

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/catena-dev/catena/test/internal/cluster"
)

// auditPolicy has all levels, and rules for the odd cases.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
- level: None
  users: [system:apiserver, system:kube-controller-manager]
- level: None
  nonResourceURLs: ["/readyz*", "/livez*", "/healthz*", "/metrics"]
- level: Metadata
  resources: [{group: "", resources: [secrets]}]
- level: RequestResponse
`

// event is a line of the audit log.
type event struct {
	Level, Stage, AuditID, Verb, RequestURI string
	User, ImpersonatedUser                  struct {
		Username, UID string
		Groups        []string
		Extra         map[string][]string
	}
	ObjectRef                     map[string]string
	ResponseStatus                map[string]any
	RequestObject, ResponseObject any
	Annotations                   map[string]string
}

// kind is the kind of a logged object.
func kind(object any) any {
	fields, _ := object.(map[string]any)
	return fields["kind"]
}

// audited is a server with auditPolicy.
type audited struct {
	*cluster.Server
	log string
}

// auditEvent waits for the last event of a request.
func (a *audited) auditEvent(t *testing.T, id string) event {
	t.Helper()
	var found event
	eventually(t, "audit event "+id, func() bool {
		log, _ := os.ReadFile(a.log)
		for line := range strings.Lines(string(log)) {
			var e event
			if strings.Contains(line, id) && json.Unmarshal([]byte(line), &e) == nil && e.AuditID == id && e.Stage == "ResponseComplete" {
				found = e
				return true
			}
		}
		return false
	})
	return found
}
