package system

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/catena-dev/catena/test/internal/cluster"
)

const (
	aliceRole    = `{"metadata": {"name": "late"}, "rules": [{"verbs": ["get", "list"], "apiGroups": [""], "resources": ["namespaces"]}]}`
	aliceBinding = `{"metadata": {"name": "late"},
		"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "late"},
		"subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice"}]}`
	aliceSchema = `{"metadata": {"name": "late"}, "spec": {
		"priorityLevelConfiguration": {"name": "workload-high"}, "matchingPrecedence": 50,
		"rules": [{"subjects": [{"kind": "User", "user": {"name": "alice"}}],
			"resourceRules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"], "clusterScope": true, "namespaces": ["*"]}]}]}}`
)

// A core that comes when the server is ready already is what the filters go by: its
// roles authorize, its flow schemas classify.
func TestCoreThatComesLate(t *testing.T) {
	t.Parallel()
	const early = `
stages:
  hello: {lock: off, delegate: core, config: {serves: ["/x"]}}
  core: {lock: off, required: false}
`
	for name, tc := range map[string]struct {
		stages string
		// come makes core come.
		come func(t *testing.T, c *cluster.Catena, config, file string)
	}{
		"not required": {early, func(t *testing.T, _ *cluster.Catena, _, file string) {
			if err := os.WriteFile(file, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}},
		"added by reload": {"\nstages:\n  hello: {lock: off, config: {serves: [\"/x\"]}}\n", func(t *testing.T, c *cluster.Catena, config, file string) {
			if err := os.WriteFile(file, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(config, []byte(lateCoreHead+early), 0o600); err != nil {
				t.Fatal(err)
			}
			if out, err := c.Command(t.Context(), "reload"); err != nil {
				t.Fatalf("reload: %v\n%s", err, out)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "come")
			config := write(t, "catena.yaml", lateCoreHead+tc.stages)
			c := catena(t, cluster.Options{ConfigFile: config, PluginDirs: []string{lateCorePlugins(t, file)}, OwnPlugins: true})
			admin, alice := c.Config(cluster.Admin), c.Config(cluster.Alice)
			const path = "/api/v1/namespaces"
			if a := do(t, alice, http.MethodGet, path, ""); a.code != http.StatusForbidden {
				t.Errorf("before core has come: %d %s", a.code, a.body)
			}

			tc.come(t, c, config, file)
			eventually(t, "core serves, and the server is ready", func() bool {
				return do(t, admin, http.MethodGet, path, "").code == http.StatusOK && do(t, admin, http.MethodGet, "/readyz", "").code == http.StatusOK
			}, func() string { return do(t, admin, http.MethodGet, "/readyz?verbose", "").body })
			const rbac = "/apis/rbac.authorization.k8s.io/v1/"
			create(t, c, rbac+"clusterroles", aliceRole)
			create(t, c, rbac+"clusterrolebindings", aliceBinding)
			uid := create(t, c, "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas", aliceSchema)
			var last response
			eventually(t, "alice is authorized, in a flow of her own", func() bool {
				last = do(t, alice, http.MethodGet, path, "")
				return last.code == http.StatusOK && last.header.Get("X-Kubernetes-Pf-Flowschema-Uid") == uid
			}, func() string { return fmt.Sprint(last) })
		})
	}
}

const lateCoreHead = `
apiVersion: catena.dev/v1alpha1
kind: HostConfiguration
log: {stageLevel: error}
`

// create creates an object and returns its UID.
func create(t *testing.T, c *cluster.Catena, path, object string) string {
	t.Helper()
	a := do(t, c.Config(cluster.Admin), http.MethodPost, path, object)
	var created struct{ Metadata struct{ UID string } }
	if err := json.Unmarshal([]byte(a.body), &created); a.code != http.StatusCreated || err != nil {
		t.Fatalf("create %s: %d %s", path, a.code, a.body)
	}
	return created.Metadata.UID
}

// lateCorePlugins are hello, and core, which does not start before the file exists.
func lateCorePlugins(t *testing.T, file string) string {
	t.Helper()
	bin, err := cluster.Bin()
	if err != nil {
		t.Fatal(err)
	}
	dir := plugins(t, "hello")
	script := fmt.Sprintf("#!/bin/sh\n[ -e %s ] || exit 1\nexec %s\n", file, filepath.Join(bin, "plugins", "catena-stage-core"))
	if err := cluster.WriteProgram(filepath.Join(dir, "catena-stage-core"), []byte(script)); err != nil {
		t.Fatal(err)
	}
	return dir
}
