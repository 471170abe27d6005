package system

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/catena-dev/catena/sdk"
	"github.com/catena-dev/catena/sdk/stagev1"
	"github.com/catena-dev/catena/test/internal/cluster"
)

// writeAgain makes three objects of a request, each with another body, and returns the status of each, or declines
// then.
func writeAgain(env *sdk.Env, w http.ResponseWriter, r *http.Request) {
	var codes []int
	for n := range 3 {
		each := r.Clone(r.Context())
		body := fmt.Sprintf(`{"metadata": {"name": "%s-%d"}}`, r.Header.Get("X-Name"), n)
		each.Body, each.ContentLength = http.NoBody, 0
		if r.Method == http.MethodPost {
			each.Body, each.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
		}
		recorded := httptest.NewRecorder()
		env.Call.ServeHTTP(recorded, each)
		codes = append(codes, recorded.Code)
	}
	if r.Header.Get(forgeHeader) == "again and decline" {
		sdk.SetHostHeader(w, stagev1.HeaderDecline, "1")
		w.WriteHeader(http.StatusNotFound)
		return
	}
	fmt.Fprint(w, codes)
}

// Each object that is made of a request is in the audit log: of a stage that may not rewrite there is one, and of one
// that may each has an event.
func TestWhatIsWrittenIsAudited(t *testing.T) {
	t.Parallel()
	for grants, want := range map[string]string{"": "[201 403 403]", ", rewrite: true": "[201 201 201]"} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			log := filepath.Join(t.TempDir(), "audit.log")
			config := strings.Replace(strings.Replace(beforeKubernetes, "hello:", "forger:", 1), `["/**"]}`, `["/**"]`+grants+"}", 1)
			s := catena(t, cluster.Options{
				ConfigFile: write(t, "catena.yaml", config), PluginDirs: []string{plugins(t, "forger")},
				Flags: map[string]string{"audit-policy-file": write(t, "policy.yaml", auditPolicy), "audit-log-path": log},
			})
			a := &audited{s.Server, log}
			admin := s.Config(cluster.Admin)
			for name, how := range map[string]string{"one": "again", "two": "again and decline"} {
				id := auditID(name)
				r := do(t, admin, http.MethodPost, "/api/v1/namespaces/default/configmaps", fmt.Sprintf(`{"metadata": {"name": "%s"}}`, name),
					"Audit-ID: "+id, forgeHeader+": "+how, "X-Name: "+name)
				if how == "again" && r.body != want || how != "again" && (r.code < 500 || r.header.Get("Retry-After") != "") {
					t.Errorf("%s: %d %s %v", how, r.code, r.body, r.header)
				}
				a.awaitEvents(t, id)
				later := auditID("later " + name)
				do(t, admin, http.MethodGet, "/version", "", "Audit-ID: "+later)
				a.awaitEvents(t, later)
				var logged []string
				for _, e := range a.awaitEvents(t, id) {
					if object, ok := e.RequestObject.(map[string]any); ok && e.User.Username != "" {
						logged = append(logged, fmt.Sprint(object["metadata"].(map[string]any)["name"]))
					}
				}
				var made []string
				for object := range strings.FieldsSeq(kubectl(t, s.Server, "get", "configmaps", "-o", "name")) {
					if object = strings.TrimPrefix(object, "configmap/"); strings.HasPrefix(object, name) {
						made = append(made, object)
					}
				}
				slices.Sort(logged)
				slices.Sort(made)
				if !slices.Equal(logged, made) || len(made) != strings.Count(want, "201") {
					t.Errorf("%s: made are %q, and logged %q", how, made, logged)
				}
			}
		})
	}
}
