package system

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

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
		createPod(t, s, kubectl(t, s, "kustomize", dir))
	}

	testServiceMonitor(t, s)
	testIsolationInPods(t, s)
}

// createPod tries to create a pod as the workload among the manifests does: a workload whose pods nobody may create is
// accepted. It returns the pod.
func createPod(t *testing.T, s *cluster.Server, manifests string) (pod corev1.Pod) {
	t.Helper()
	for document := range strings.SplitSeq(manifests, "\n---\n") {
		var workload struct {
			Spec struct {
				Template             *corev1.PodTemplateSpec
				VolumeClaimTemplates []metav1.PartialObjectMetadata
			}
		}
		if err := yaml.Unmarshal([]byte(document), &workload); err != nil {
			t.Fatal(err)
		}
		if workload.Spec.Template == nil {
			continue
		}
		pod = corev1.Pod{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
			ObjectMeta: metav1.ObjectMeta{Name: "catena", Namespace: "catena"},
			Spec:       workload.Spec.Template.Spec,
		}
		for _, claim := range workload.Spec.VolumeClaimTemplates {
			pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: claim.Name})
		}
		text, err := yaml.Marshal(pod)
		if err != nil {
			t.Fatal(err)
		}
		kubectl(t, s, "create", "-f", write(t, "pod.yaml", string(text)), "--dry-run=server", "--validate=strict")
	}
	return pod
}

// overlay makes an overlay of the base with a component, and returns its directory.
func overlay(t *testing.T, component string) string {
	t.Helper()
	dir := t.TempDir()
	path := func(name string) string {
		relative, err := filepath.Rel(dir, filepath.Join(cluster.Root(), "configs", "kubernetes", name))
		if err != nil {
			t.Fatal(err)
		}
		return relative
	}
	text := fmt.Sprintf("resources: [%s]\ncomponents: [%s]\n", path("base"), path(component))
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// testIsolationInPods adds the component to an overlay: pods get what catena needs to make namespaces, and no more.
func testIsolationInPods(t *testing.T, s *cluster.Server) {
	t.Helper()
	manifests := kubectl(t, s, "kustomize", overlay(t, "isolation"))
	const level = "pod-security.kubernetes.io/enforce"
	if !strings.Contains(manifests, level+": privileged") {
		t.Errorf("the namespace does not admit such pods:\n%s", manifests)
	}
	kubectl(t, s, "label", "--overwrite", "namespace", "catena", level+"=privileged")
	pod := createPod(t, s, manifests).Spec
	if got := pod.HostUsers; got == nil || *got {
		t.Error("the pod has no user namespace")
	}
	if got := pod.SecurityContext; got.SeccompProfile.Type != corev1.SeccompProfileTypeUnconfined ||
		got.AppArmorProfile.Type != corev1.AppArmorProfileTypeUnconfined || !*got.RunAsNonRoot {
		t.Errorf("the pod has %+v", got)
	}
	if got := pod.Containers[0].SecurityContext; *got.ProcMount != corev1.UnmaskedProcMount || *got.AllowPrivilegeEscalation || len(got.Capabilities.Add) > 0 {
		t.Errorf("the container has %+v", got)
	}
}

// prometheusOperator is a module with the definition of a ServiceMonitor.
const prometheusOperator = "github.com/prometheus-operator/prometheus-operator@v0.85.0"

// testServiceMonitor adds the component to an overlay, where Prometheus' operator is.
func testServiceMonitor(t *testing.T, s *cluster.Server) {
	t.Helper()
	var module struct{ Dir string }
	out, err := exec.Command("go", "mod", "download", "-json", prometheusOperator).Output()
	if err := errors.Join(err, json.Unmarshal(out, &module)); err != nil {
		t.Fatalf("%s: %v\n%s", prometheusOperator, err, out)
	}
	definition := filepath.Join(module.Dir, "example", "prometheus-operator-crd", "monitoring.coreos.com_servicemonitors.yaml")
	kubectl(t, s, "create", "-f", definition)
	discovery := clientset(t, s, cluster.Admin).Discovery().RESTClient()
	eventually(t, "ServiceMonitors are served, and in discovery", func() bool {
		return discovery.Get().AbsPath("/apis/monitoring.coreos.com/v1/servicemonitors").Do(t.Context()).Error() == nil &&
			strings.Contains(kubectl(t, s, "api-resources", "-o", "name", "--cached=false"), "servicemonitors")
	})
	dir := overlay(t, "servicemonitor")
	got := kubectl(t, s, "apply", "-k", dir, "--dry-run=server", "--validate=strict", "--warnings-as-errors")
	if want := "servicemonitor.monitoring.coreos.com/catena created (server dry run)"; !strings.Contains(got, want) {
		t.Errorf("%q is not in\n%s", want, got)
	}
	// It selects the Service by its labels, and an endpoint of that by its name.
	var monitor struct {
		Spec struct {
			Selector  metav1.LabelSelector
			Endpoints []struct{ Port string }
		}
	}
	var service corev1.Service
	for document := range strings.SplitSeq(kubectl(t, s, "kustomize", dir), "\n---\n") {
		var kind metav1.TypeMeta
		if err := yaml.Unmarshal([]byte(document), &kind); err != nil {
			t.Fatal(err)
		}
		var err error
		switch kind.Kind {
		case "ServiceMonitor":
			err = yaml.Unmarshal([]byte(document), &monitor)
		case "Service":
			err = yaml.Unmarshal([]byte(document), &service)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	selector, err := metav1.LabelSelectorAsSelector(&monitor.Spec.Selector)
	if err != nil || !selector.Matches(labels.Set(service.Labels)) {
		t.Errorf("the ServiceMonitor selects %v (%v), the Service has %v", selector, err, service.Labels)
	}
	for _, e := range monitor.Spec.Endpoints {
		if !slices.ContainsFunc(service.Spec.Ports, func(p corev1.ServicePort) bool { return p.Name == e.Port }) {
			t.Errorf("the Service has no port %q", e.Port)
		}
	}
}
