package system

import (
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/catena-dev/catena/sdk"
	"github.com/catena-dev/catena/sdk/stagev1"
	"github.com/catena-dev/catena/test/internal/cluster"
)

// forgeHeader has a forger decline a request ("decline"), call the next stage for it ("call"), or serve it ("serve").
const forgeHeader = "X-Forge"

// newForger makes a stage that says of each request what is not its own to say.
func newForger(env *sdk.Env) (http.Handler, error) {
	env.ClaimPrefix("/")
	const audit = `{"annotations":{"forger.stage.catena.dev/own":"1","example.com/x":"forged","rewrite.catena.dev/core":"forged","authorization.k8s.io/decision":"forged","pod-security.kubernetes.io/enforce-policy":"forged"},` +
		`"objectRef":{"name":"forged","uid":"forged"},"requestObject":{"forged":1},"responseObject":{"forged":1},"responseStatus":{"message":"forged","reason":"forged"}}`
	say := func(w http.ResponseWriter) {
		sdk.SetHostHeader(w, stagev1.HeaderAudit, audit)
		sdk.SetHostHeader(w, stagev1.HeaderLatency, "etcd=600000000000,mutating-webhook=600000000000")
		for _, key := range []string{"Audit-Id", "X-Kubernetes-Pf-Flowschema-Uid", "X-Kubernetes-Pf-Prioritylevel-Uid", "Access-Control-Allow-Origin"} {
			w.Header().Set(key, "forged")
		}
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.Header.Get(forgeHeader) {
		case "decline":
			say(w)
			sdk.SetHostHeader(w, stagev1.HeaderDecline, "1")
			w.WriteHeader(http.StatusNotFound)
		case "call":
			r.Header.Set("Audit-Id", "forged")
			r.Header.Set("Impersonate-User", "forged")
			env.Call.ServeHTTP(&forgingWriter{w, say}, r)
		case "again", "again and decline":
			writeAgain(env, w, r)
		case "serve":
			say(w)
			fmt.Fprint(w, "served")
		default:
			env.Next.ServeHTTP(w, r)
		}
	}), nil
}

// forgingWriter calls say before the head is written.
type forgingWriter struct {
	http.ResponseWriter
	say func(http.ResponseWriter)
}

func (w *forgingWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *forgingWriter) WriteHeader(code int) {
	w.say(w.ResponseWriter)
	w.ResponseWriter.WriteHeader(code)
}

// A stage says in audit events, and in the headers of responses, nothing of requests that another serves but in its own name.
func TestForgedAuditEvents(t *testing.T) {
	t.Parallel()
	log := filepath.Join(t.TempDir(), "audit.log")
	s := catena(t, cluster.Options{
		ConfigFile: write(t, "catena.yaml", strings.Replace(beforeKubernetes, "hello:", "forger:", 1)), PluginDirs: []string{plugins(t, "forger")},
		Flags: map[string]string{"audit-policy-file": write(t, "policy.yaml", auditPolicy), "audit-log-path": log},
	})
	a := &audited{s.Server, log}
	admin := s.Config(cluster.Admin)
	const path = "/api/v1/namespaces/default/configmaps?dryRun=All"
	for _, how := range []string{"", "decline", "call", "serve"} {
		id := auditID("forged " + how)
		r := do(t, admin, http.MethodPost, path, `{"metadata": {"name": "true"}}`, "Audit-ID: "+id, forgeHeader+": "+how)
		e := a.auditEvent(t, id)
		if got := r.header.Values("Audit-Id"); !slices.Equal(got, []string{id}) || strings.Contains(fmt.Sprint(r.header), "forged ") || r.header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%q: the client gets %v", how, r.header)
		}
		if e.Annotations["authorization.k8s.io/decision"] != "allow" || e.Annotations["rewrite.catena.dev/core"] != "" {
			t.Errorf("%q: the host's annotations are %v", how, e.Annotations)
		}
		if how == "serve" { // and it is granted Kubernetes' paths
			if r.body != "served" || e.ResponseStatus["message"] != "forged" || e.Annotations["example.com/x"] != "forged" || e.Annotations["pod-security.kubernetes.io/enforce-policy"] != "forged" {
				t.Errorf("%d %s, event %+v", r.code, r.body, e)
			}
			continue
		}
		if r.code != http.StatusCreated || e.ObjectRef["name"] != "true" || kind(e.ResponseObject) != "ConfigMap" || strings.Contains(fmt.Sprintf("%+v", e), "forged:") ||
			slices.Contains([]string{fmt.Sprint(e.ResponseStatus["message"]), fmt.Sprint(e.ResponseStatus["reason"]), e.ObjectRef["uid"], e.Annotations["example.com/x"], e.Annotations["pod-security.kubernetes.io/enforce-policy"]}, "forged") {
			t.Errorf("%q: %d %s\nevent %+v", how, r.code, r.body, e)
		}
		if own := e.Annotations["forger.stage.catena.dev/own"]; (own == "1") != (how != "") {
			t.Errorf("%q: its own annotation is %q", how, own)
		}
		for key, value := range e.Annotations {
			if strings.HasPrefix(key, latencyAnnotation) && strings.Contains(value, "10m") {
				t.Errorf("%q: %s is %s", how, key, value)
			}
		}
	}
}
