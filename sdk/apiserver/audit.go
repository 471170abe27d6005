package apiserver

import (
	"encoding/json"
	"maps"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/audit"

	"github.com/catena-dev/catena/sdk"
	"github.com/catena-dev/catena/sdk/stagev1/header"
)

// omitManagedFields follows the level in stagev1.HeaderAuditLevel.
const omitManagedFields = ";omitManagedFields"

// auditResult is what the handlers of a request add to its audit event, as it
// goes back to the host in stagev1.HeaderAudit.
type auditResult struct {
	Annotations map[string]string `json:"annotations,omitempty"`
	// ObjectRef is what the body of the request tells about its object.
	ObjectRef      *auditv1.ObjectReference `json:"objectRef,omitempty"`
	RequestObject  json.RawMessage          `json:"requestObject,omitempty"`
	ResponseObject json.RawMessage          `json:"responseObject,omitempty"`
	ResponseStatus *metav1.Status           `json:"responseStatus,omitempty"`
}

// startAudit prepares the audit context for the level that the host's
// policy has chosen. Without a level the handlers collect nothing.
func (h *hostRequest) startAudit(header, id string) {
	level, omit := strings.CutSuffix(header, omitManagedFields)
	config := audit.RequestAuditConfig{Level: auditinternal.Level(level), OmitManagedFields: omit}
	if level == "" {
		config.Level = auditinternal.LevelNone
	}
	h.audited = config.Level != auditinternal.LevelNone
	audit.WithAuditID(h, types.UID(id))
	// The context is new, so that it cannot have been initialized before.
	_ = h.audit.Init(config, h)
}

// ProcessEvents makes the request an audit.Sink that keeps what concerns the host.
func (h *hostRequest) ProcessEvents(events ...*auditinternal.Event) bool {
	for _, event := range events {
		h.captured = auditResult{
			Annotations:    maps.Clone(event.Annotations),
			RequestObject:  rawJSON(event.RequestObject),
			ResponseObject: rawJSON(event.ResponseObject),
			ResponseStatus: event.ResponseStatus,
		}
		if event.ObjectRef != nil {
			ref := auditv1.ObjectReference(*event.ObjectRef)
			h.captured.ObjectRef = &ref
		}
	}
	return true
}

// capture takes what the handlers have left so far.
func (h *hostRequest) capture() {
	h.audit.ProcessEventStage(h, auditinternal.StageResponseComplete)
}

const (
	// maxAuditHead is how much of an audit event goes in the head of a response, in bytes: more goes in a message before it.
	maxAuditHead = 64 << 10
	// maxUnsentAudit is how much goes in the head if the host takes no message.
	maxUnsentAudit = 1 << 20
	// truncated is the annotation of an event without the objects that were in it: that of Kubernetes' audit backends.
	truncated = "audit.k8s.io/truncated"
)

// sendAudit sends what there is to tell if it is large. It returns the value of stagev1.HeaderAudit, empty if there is nothing left to
// tell. Objects that are too large for that are left out: the request has been executed, and does not fail for its audit event.
func (h *hostRequest) sendAudit() string {
	h.capture()
	text := h.captured.encode()
	if len(text) <= maxAuditHead {
		return header.EscapeJSON(text)
	}
	if err := sdk.SendAudit(h, h.adapter.env, h.original, text); err == nil {
		return ""
	}
	if value := header.EscapeJSON(text); len(value) <= maxUnsentAudit {
		return value
	}
	cut := h.captured
	cut.RequestObject, cut.ResponseObject, cut.Annotations = nil, nil, maps.Clone(cut.Annotations)
	if cut.Annotations == nil {
		cut.Annotations = map[string]string{}
	}
	cut.Annotations[truncated] = "true"
	return cut.header()
}

func (c *auditResult) header() string { return header.EscapeJSON(c.encode()) }

// encode returns the JSON text, empty if there is nothing to tell.
func (c *auditResult) encode() []byte {
	if c.empty() {
		return nil
	}
	encoded, err := json.Marshal(c)
	if err != nil {
		return nil
	}
	return encoded
}

func (c *auditResult) empty() bool {
	return len(c.Annotations) == 0 && c.ObjectRef == nil && c.RequestObject == nil && c.ResponseObject == nil && c.ResponseStatus == nil
}

// rawJSON returns the JSON of an object in an event. A server-side apply may
// have logged its body as YAML, which Kubernetes cannot put into an event either.
func rawJSON(object *runtime.Unknown) json.RawMessage {
	if object == nil || !json.Valid(object.Raw) {
		return nil
	}
	return object.Raw
}
