package sdk

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/catena-dev/catena/sdk/stagev1"
	"github.com/catena-dev/catena/sdk/stagev1/header"
)

// AuditAnnotation adds an annotation to the audit event of a request, if there is one. A key is like that of a label,
// with a domain: NAME.stage.catena.dev/reason, with the name of the stage, is its own, and the only domain that counts
// if the stage then declines the request or passes it on. A stage that serves the request may also use others, such as
// example.com/reason, but Kubernetes' only with a grant for Kubernetes' paths. Annotations are added until the response
// begins, also if the request is then declined or passed on; later ones reach the host only in the trailer of a
// response of unknown length. The first value of a key stays, as in kube-apiserver.
func AuditAnnotation(r *http.Request, key, value string) {
	x := exchangeFrom(r.Context())
	if x == nil || x.auditLevel == "" {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.annotations == nil {
		x.annotations = map[string]string{}
	}
	if _, ok := x.annotations[key]; !ok {
		x.annotations[key] = value
	}
}

// SendAudit adds to the audit event of a request that the stage serves what is too large for the head of its response:
// part is a JSON object as in stagev1.HeaderAudit. It is called before the response begins, and returns when the host
// has it. The host takes it from stages that are granted keys, or the store's registry.
func SendAudit(ctx context.Context, e *Env, w http.ResponseWriter, part []byte) error {
	x := exchangeOf(w)
	if x == nil || x.id == "" {
		return errors.New("the request did not come from the host")
	}
	return tellHost(ctx, e, stagev1.HeaderAuditPart, x.id, part)
}

// addAnnotations moves the annotations to h, under key. The caller holds the lock.
func (x *exchange) addAnnotations(h http.Header, key string) {
	if len(x.annotations) == 0 {
		return
	}
	text, err := json.Marshal(map[string]any{"annotations": x.annotations})
	if err == nil {
		h.Add(key, header.EscapeJSON(text))
	}
	x.annotations = nil
}

// addNotices moves warnings and annotations to the head of a response.
func (x *exchange) addNotices(h http.Header) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.addWarnings(h)
	x.addAnnotations(h, stagev1.HeaderAudit)
}

// addTrailingNotices moves annotations to the trailer of a response.
func (x *exchange) addTrailingNotices(h http.Header) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.addAnnotations(h, http.TrailerPrefix+stagev1.HeaderAudit)
}
