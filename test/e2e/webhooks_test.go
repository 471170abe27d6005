package e2e

import (
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/catena-dev/catena/test/internal/cluster"
)

// webhooks is a server of admission and conversion webhooks.
type webhooks struct {
	port string
	ca   string // base64 of PEM
}

func startWebhooks(t *testing.T, namespace string) webhooks {
	t.Helper()
	ca, certFile, keyFile := newServingCertificate(t, "hooks."+namespace+".svc")
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/mutate", serveReview(mutate))
	mux.HandleFunc("/validate", serveReview(validate))
	mux.HandleFunc("/convert", serveReview(convert))
	server := httptest.NewUnstartedServer(mux)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	server.StartTLS()
	t.Cleanup(server.Close)
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return webhooks{port: port, ca: base64.StdEncoding.EncodeToString(ca)}
}

// serveReview decodes a review, has it answered, and sends it back.
func serveReview[Review any](answer func(*Review) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		review := new(Review)
		err := json.NewDecoder(r.Body).Decode(review)
		if err == nil {
			err = answer(review)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(review)
	}
}

// mutate notes who has made the object.
func mutate(r *admissionv1.AdmissionReview) error {
	patch, err := json.Marshal([]map[string]any{{"op": "add", "path": "/metadata/annotations", "value": map[string]string{"made-by": r.Request.UserInfo.Username}}})
	json := admissionv1.PatchTypeJSONPatch
	r.Response = &admissionv1.AdmissionResponse{UID: r.Request.UID, Allowed: true, Patch: patch, PatchType: &json}
	return err
}

// validate refuses a name, and warns of all others.
func validate(r *admissionv1.AdmissionReview) error {
	r.Response = &admissionv1.AdmissionResponse{UID: r.Request.UID, Allowed: r.Request.Name != "denied", Warnings: []string{"this is watched"}}
	if !r.Response.Allowed {
		r.Response.Result = &metav1.Status{Message: "not this name"}
	}
	return nil
}

// convert moves spec.size of v1 to spec.extent of v2 and back.
func convert(r *apiextensionsv1.ConversionReview) error {
	r.Response = &apiextensionsv1.ConversionResponse{UID: r.Request.UID, Result: metav1.Status{Status: metav1.StatusSuccess}}
	for _, raw := range r.Request.Objects {
		var object unstructured.Unstructured
		if err := json.Unmarshal(raw.Raw, &object.Object); err != nil {
			return err
		}
		from, to := "size", "extent"
		if strings.HasSuffix(r.Request.DesiredAPIVersion, "/v1") {
			from, to = to, from
		}
		if value, ok, _ := unstructured.NestedFieldNoCopy(object.Object, "spec", from); ok {
			unstructured.RemoveNestedField(object.Object, "spec", from)
			if err := unstructured.SetNestedField(object.Object, value, "spec", to); err != nil {
				return err
			}
		}
		object.SetAPIVersion(r.Request.DesiredAPIVersion)
		r.Response.ConvertedObjects = append(r.Response.ConvertedObjects, runtime.RawExtension{Object: &object})
	}
	return nil
}

// client is how the server is reached: by a service, as in a cluster, or by its URL.
func (h webhooks) client(namespace, path string, service bool) string {
	if service {
		return fmt.Sprintf("{caBundle: %s, service: {namespace: %s, name: hooks, port: %s, path: /%s}}", h.ca, namespace, h.port, path)
	}
	return fmt.Sprintf(`{caBundle: %s, url: "https://127.0.0.1:%s/%s"}`, h.ca, h.port, path)
}

const webhookObjects = `
{apiVersion: v1, kind: Service, metadata: {name: hooks}, spec: {type: ExternalName, externalName: localhost}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: NAMESPACE}
webhooks:
- name: mutate.example.com
  clientConfig: MUTATE
  rules: [{apiGroups: ["*"], apiVersions: ["*"], operations: [CREATE], resources: [configmaps, meters]}]
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NAMESPACE}}
  sideEffects: None
  admissionReviewVersions: [v1]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: NAMESPACE}
webhooks:
- name: validate.example.com
  clientConfig: VALIDATE
  rules: [{apiGroups: ["*"], apiVersions: ["*"], operations: [CREATE], resources: [configmaps, meters]}]
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NAMESPACE}}
  sideEffects: None
  admissionReviewVersions: [v1]
`

// Admission webhooks see the objects of every stage, and who makes them.
func TestAdmissionWebhooks(t *testing.T) {
	t.Parallel()
	s := shared(t)
	k := s.kubectl(t)
	kind := createKind(k, "Meter", "meters")
	h := startWebhooks(t, k.namespace)
	k.pipe(strings.NewReplacer("NAMESPACE", k.namespace, "MUTATE", h.client(k.namespace, "mutate", true),
		"VALIDATE", h.client(k.namespace, "validate", false)).Replace(webhookObjects), "create", "-f", "-")
	t.Cleanup(func() {
		k.afterTest("delete", "mutatingwebhookconfiguration,validatingwebhookconfiguration", k.namespace)
	})
	k.run("create", "rolebinding", "alice", "--clusterrole=edit", "--user=alice")
	k.run("create", "role", "meters", "--verb=*", "--resource="+kind.resource)
	k.run("create", "rolebinding", "meters", "--role=meters", "--user=alice")
	alice := k.with(s.users[cluster.Alice])
	for resource, object := range map[string]func(name string) string{
		"configmaps":  func(name string) string { return configMap(name, "") },
		kind.resource: func(name string) string { return kind.object(name, 1) },
	} {
		awaitWebhooks(alice, object)
		_, stderr, code := alice.try(object("good"), "create", "-f", "-")
		if code != 0 || stderr != "Warning: this is watched\n" {
			t.Errorf("create %s: exit code %d, %q", resource, code, stderr)
		}
		k.equal("alice", "get", resource, "good", "-o", "jsonpath={.metadata.annotations.made-by}")
	}
}

// awaitWebhooks waits until both webhooks are asked about a kind: the server that asks
// learns of each by itself.
func awaitWebhooks(k *kubectl, object func(name string) string) {
	k.t.Helper()
	pollKubectl(k, []string{"denied the request: not this name"}, "create", "--dry-run=server", "-f", k.file(object("denied")))
	pollKubectl(k, []string{"made-by"}, "create", "--dry-run=server", "-o", "yaml", "-f", k.file(object("probe")))
}

// Objects of one version are read and watched as another, through a webhook.
func TestConversionWebhook(t *testing.T) {
	t.Parallel()
	k := shared(t).kubectl(t)
	kind := createKind(k, "Ruler", "rulers")
	h := startWebhooks(t, k.namespace)
	k.run("create", "service", "externalname", "hooks", "--external-name=localhost")
	k.pipe(kind.object("old", 1), "create", "-f", "-")
	v2 := `{name: v2, served: true, storage: false, schema: {openAPIV3Schema: {type: object, properties: {
		spec: {type: object, properties: {extent: {type: integer}, color: {type: string}}}}}}}`
	patch := fmt.Sprintf(`[{op: add, path: /spec/versions/-, value: %s}, {op: add, path: /spec/conversion,
		value: {strategy: Webhook, webhook: {conversionReviewVersions: [v1], clientConfig: %s}}}]`, v2, h.client(k.namespace, "convert", true))
	k.run("patch", "crd", kind.resource, "--type=json", "-p", patch)
	second := "rulers.v2." + kind.group
	eventuallyPrints(k, func(out string) bool { return out == "1" }, "get", second, "old", "-o", "jsonpath={.spec.extent}")
	k.equal("1", "get", "rulers.v1."+kind.group, "old", "-o", "jsonpath={.spec.size}")
	watch := k.start("get", second, "--watch", "--output-watch-events", "-o", `jsonpath={.type} {.object.metadata.name} {.object.spec.extent}{"\n"}`)
	watch.expect("ADDED old 1")
	k.pipe(kind.object("new", 2), "create", "-f", "-")
	watch.expect("ADDED new 2")
	k.run("patch", second, "new", "--type=merge", "-p", `{"spec":{"extent":3}}`)
	watch.expect("MODIFIED new 3")
	k.equal("3", "get", "rulers.v1."+kind.group, "new", "-o", "jsonpath={.spec.size}")
}
