package system

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

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

// auditID is an Audit-ID that no other request has.
func auditID(name string) string {
	return fmt.Sprintf("%s-%x", strings.ReplaceAll(name, " ", "-"), time.Now().UnixNano())
}

// auditEvent waits for the event of a request, and checks that it is the only one: a
// request that has gone through the filters twice has two.
func (a *audited) auditEvent(t *testing.T, id string) event {
	t.Helper()
	a.awaitEvents(t, id)
	// The event of an inner pass is written before that of the outer one, and this
	// before that of a later request.
	later := auditID("later")
	do(t, a.Config(cluster.Admin), http.MethodGet, "/version", "", "Audit-ID: "+later)
	a.awaitEvents(t, later)
	events := a.awaitEvents(t, id)
	if len(events) != 1 {
		t.Errorf("request %s has %d events: %+v", id, len(events), events)
	}
	return events[0]
}

// awaitEvents waits until a request has ended, at least once.
func (a *audited) awaitEvents(t *testing.T, id string) (events []event) {
	t.Helper()
	eventually(t, "audit event "+id, func() bool {
		log, _ := os.ReadFile(a.log)
		events = nil
		for line := range strings.Lines(string(log)) {
			var e event
			if strings.Contains(line, id) && json.Unmarshal([]byte(line), &e) == nil && e.AuditID == id && e.Stage == "ResponseComplete" {
				events = append(events, e)
			}
		}
		return len(events) > 0
	})
	return events
}
