package apistage

import (
	"context"
	"encoding/json"
	"maps"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/audit"
)

// omitManagedFields follows the level in stagev1.HeaderAuditLevel.
const omitManagedFields = ";omitManagedFields"

// carriedAudit is what the handlers of a request add to its audit event, as it
// goes back to the host in stagev1.HeaderAudit.
type carriedAudit struct {
	Annotations map[string]string `json:"annotations,omitempty"`
	// ObjectRef is what the body of the request tells about its object.
	ObjectRef      *auditv1.ObjectReference `json:"objectRef,omitempty"`
	RequestObject  json.RawMessage          `json:"requestObject,omitempty"`
	ResponseObject json.RawMessage          `json:"responseObject,omitempty"`
	ResponseStatus *metav1.Status           `json:"responseStatus,omitempty"`
}

// startAudit prepares the audit context of ctx for the level that the host's
// policy has chosen. Without a level the handlers collect nothing.
func (x *exchange) startAudit(ctx context.Context, header string) {
	level, omit := strings.CutSuffix(header, omitManagedFields)
	config := audit.RequestAuditConfig{Level: auditinternal.Level(level), OmitManagedFields: omit}
	if level == "" {
		config.Level = auditinternal.LevelNone
	}
	x.audited = config.Level != auditinternal.LevelNone
	// The context is new, so that it cannot have been initialized before.
	_ = audit.AuditContextFrom(ctx).Init(config, x)
}

// ProcessEvents makes the exchange an audit.Sink that keeps what concerns the host.
func (x *exchange) ProcessEvents(events ...*auditinternal.Event) bool {
	for _, event := range events {
		x.captured = carriedAudit{
			Annotations:    maps.Clone(event.Annotations),
			RequestObject:  rawJSON(event.RequestObject),
			ResponseObject: rawJSON(event.ResponseObject),
			ResponseStatus: event.ResponseStatus,
		}
		if event.ObjectRef != nil {
			ref := auditv1.ObjectReference(*event.ObjectRef)
			x.captured.ObjectRef = &ref
		}
	}
	return true
}

// auditHeader returns the value of stagev1.HeaderAudit, empty if there is
// nothing to tell.
func (x *exchange) auditHeader() string {
	audit.AuditContextFrom(x.ctx).ProcessEventStage(x.ctx, auditinternal.StageResponseComplete)
	if x.captured.empty() {
		return ""
	}
	encoded, err := json.Marshal(x.captured)
	if err != nil {
		return ""
	}
	return ascii(encoded)
}

func (c *carriedAudit) empty() bool {
	return len(c.Annotations) == 0 && c.ObjectRef == nil && c.RequestObject == nil && c.ResponseObject == nil && c.ResponseStatus == nil
}

// rawJSON returns the JSON of an object in an event. A server-side apply may
// have logged its body as YAML, which upstream cannot put into an event either.
func rawJSON(object *runtime.Unknown) json.RawMessage {
	if object == nil || !json.Valid(object.Raw) {
		return nil
	}
	return object.Raw
}

// ascii escapes all characters of a JSON text that a header value may not have:
// those beyond ASCII, and DEL. They can only be inside strings.
func ascii(text []byte) string {
	const del = 0x7f
	i := 0
	for i < len(text) && text[i] < del {
		i++
	}
	if i == len(text) {
		return string(text)
	}
	const digits = "0123456789abcdef"
	out := append(make([]byte, 0, len(text)+len(text)/4), text[:i]...)
	escape := func(unit rune) {
		out = append(out, '\\', 'u', digits[unit>>12&15], digits[unit>>8&15], digits[unit>>4&15], digits[unit&15])
	}
	for i < len(text) {
		r, size := utf8.DecodeRune(text[i:])
		i += size
		switch {
		case r < del:
			out = append(out, byte(r))
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			escape(high)
			escape(low)
		default:
			escape(r)
		}
	}
	return string(out)
}
