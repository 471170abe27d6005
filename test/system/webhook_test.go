package system

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"
)

// webhook is an admission webhook that takes its time and allows everything.
type webhook struct {
	*httptest.Server
	asked atomic.Int32
	think func()
}

// webhookDelay is above the half second from which on Kubernetes logs where time went.
const webhookDelay = 700 * time.Millisecond

func startWebhook(t *testing.T) *webhook {
	t.Helper()
	return startThinkingWebhook(t, func() { time.Sleep(webhookDelay) })
}

// startThinkingWebhook starts one that calls a function before it responds.
func startThinkingWebhook(t *testing.T, think func()) *webhook {
	t.Helper()
	w := &webhook{think: think}
	w.Server = httptest.NewTLSServer(http.HandlerFunc(w.review))
	t.Cleanup(w.Close)
	return w
}

func (h *webhook) review(w http.ResponseWriter, r *http.Request) {
	h.asked.Add(1)
	var review struct{ Request struct{ UID string } }
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	h.think()
	fmt.Fprintf(w, `{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": {"uid": %q, "allowed": true}}`, review.Request.UID)
}

// configuration makes API servers ask the webhook about what has the label slow.
func (h *webhook) configuration() string {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: h.Certificate().Raw})
	return fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: slow}
webhooks:
- name: slow.example.com
  clientConfig: {url: %q, caBundle: %s}
  admissionReviewVersions: [v1]
  sideEffects: None
  failurePolicy: Ignore
  timeoutSeconds: 30
  objectSelector: {matchLabels: {slow: "yes"}}
  rules:
  - {apiGroups: ["*"], apiVersions: ["*"], operations: [CREATE], resources: [configmaps, widgets]}
`, h.URL, base64.StdEncoding.EncodeToString(ca))
}
