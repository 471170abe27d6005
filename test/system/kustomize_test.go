package system

import (
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/catena-dev/catena/test/internal/cluster"
)

// The manifests for a hosted control plane are accepted by Catena itself, strictly and under Pod Security's level
// restricted, without a warning of either.
func TestKustomizations(t *testing.T) {
	t.Parallel()
	s := catena(t, cluster.Options{}).Server
	kubectl(t, s, "create", "namespace", "catena")
	kubectl(t, s, "create", "serviceaccount", "default", "-n", "catena") // as kube-controller-manager does
	kubectl(t, s, "label", "namespace", "catena", "pod-security.kubernetes.io/enforce=restricted")
	for name, want := range map[string]string{"base": "statefulset.apps/catena", "external-etcd": "deployment.apps/catena"} {
		dir := filepath.Join(cluster.Root(), "configs", "kubernetes", name)
		out := kubectl(t, s, "apply", "-k", dir, "--dry-run=server", "--validate=strict", "--warnings-as-errors")
		if !strings.Contains(out, want+" created (server dry run)") || strings.Count(out, "apps/") != 1 {
			t.Errorf("%s: %s", name, out)
		}
		// A pod by itself, since a workload whose pods nobody may create is accepted.
		for document := range strings.SplitSeq(kubectl(t, s, "kustomize", dir), "\n---\n") {
			var workload struct {
				Spec struct{ Template map[string]any }
			}
			if err := yaml.Unmarshal([]byte(document), &workload); err != nil {
				t.Fatal(err)
			}
			pod := workload.Spec.Template
			if pod == nil {
				continue
			}
			pod["apiVersion"], pod["kind"] = "v1", "Pod"
			pod["metadata"] = map[string]any{"name": "catena", "namespace": "catena"}
			if name == "base" { // the claim of a StatefulSet is none of its template
				spec := pod["spec"].(map[string]any)
				spec["volumes"] = append(spec["volumes"].([]any), map[string]any{"name": "data", "emptyDir": map[string]any{}})
			}
			text, err := yaml.Marshal(pod)
			if err != nil {
				t.Fatal(err)
			}
			kubectl(t, s, "create", "-f", write(t, "pod.yaml", string(text)), "--dry-run=server", "--validate=strict")
		}
	}
}
