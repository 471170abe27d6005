package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A Deployment makes its ReplicaSet, that its Pods, and they are bound to a node.
func TestDeployment(t *testing.T) {
	t.Parallel()
	s := shared(t)
	k := s.kubectl(t)
	k.run("create", "deployment", "web", "--image=web:1", "--replicas=3")
	k.run("rollout", "status", "deployment/web", patiently)
	sets, err := s.client.AppsV1().ReplicaSets(k.namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(sets.Items) != 1 || !metav1.IsControlledBy(&sets.Items[0], get(t, k, "deployment", "web")) {
		t.Fatalf("want one ReplicaSet of the Deployment: %v, %v", sets, err)
	}
	pods := s.pods(t, k.namespace)
	if len(pods) != 3 {
		t.Errorf("there are %d pods, want 3", len(pods))
	}
	for _, p := range pods {
		if !metav1.IsControlledBy(&p, &sets.Items[0]) || p.Spec.NodeName != nodeName || p.Status.Phase != corev1.PodRunning {
			t.Errorf("pod %s of %v is %s on node %q", p.Name, p.OwnerReferences, p.Status.Phase, p.Spec.NodeName)
		}
	}
	// The controller replaces a pod that is deleted.
	k.run("delete", "pod", pods[0].Name)
	k.run("wait", "--for=jsonpath={.status.readyReplicas}=3", "deployment/web", patiently)
	k.run("scale", "deployment", "web", "--replicas=0")
	eventually(t, "all pods go", func(context.Context) error {
		if n := len(s.pods(t, k.namespace)); n > 0 {
			return fmt.Errorf("%d are left", n)
		}
		return nil
	})
}

// The scheduler puts a pod only where it tolerates the taints.
func TestTolerations(t *testing.T) {
	t.Parallel()
	s := shared(t)
	k := s.kubectl(t)
	node := "tainted-" + k.namespace
	s.taintedNode(t, node)
	const pod = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"%s"},"spec":{"terminationGracePeriodSeconds":0,
		"nodeSelector":{"kubernetes.io/hostname":"%s"},"containers":[{"name":"c","image":"i"}],"tolerations":[%s]}}`
	k.pipe(fmt.Sprintf(pod, "choosy", node, ""), "create", "-f", "-")
	k.pipe(fmt.Sprintf(pod, "tolerant", node, `{"key":"dedicated","operator":"Exists"}`), "create", "-f", "-")
	k.run("wait", "--for=condition=PodScheduled", "pod/tolerant", patiently)
	k.equal(node, "get", "pod", "tolerant", "-o", "jsonpath={.spec.nodeName}")
	k.run("wait", "--for=jsonpath={.status.conditions[0].reason}=Unschedulable", "pod/choosy", patiently)
	k.contains("why not", k.run("get", "pod", "choosy", "-o", "jsonpath={.status.conditions[0].message}"), "untolerated taint")
}

// taintedNode is a Node without a kubelet, while the test runs.
func (s *system) taintedNode(t *testing.T, name string) {
	t.Helper()
	room := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("4Gi"), corev1.ResourcePods: resource.MustParse("10")}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}},
		Spec:       corev1.NodeSpec{Taints: []corev1.Taint{{Key: "dedicated", Value: "x", Effect: corev1.TaintEffectNoSchedule}}},
		Status: corev1.NodeStatus{
			Capacity: room, Allocatable: room,
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.Now()}},
		},
	}
	if _, err := s.client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.client.CoreV1().Nodes().Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
}

func TestGarbageCollection(t *testing.T) {
	t.Parallel()
	s := shared(t)
	for _, cascade := range []string{"foreground", "background", "orphan"} {
		t.Run(cascade, func(t *testing.T) {
			t.Parallel()
			k := s.kubectl(t)
			k.run("create", "deployment", "web", "--image=web:1", "--replicas=2")
			k.run("rollout", "status", "deployment/web", patiently)
			k.run("delete", "deployment", "web", "--cascade="+cascade)
			left := func() string { return k.run("get", "replicasets,pods", "-o", "name") }
			switch cascade {
			case "foreground": // the owner goes last
				if got := left(); got != "" {
					t.Errorf("after the Deployment has gone there is still %s", got)
				}
			case "background":
				eventuallyPrints(k, func(out string) bool { return out == "" }, "get", "replicasets,pods", "-o", "name")
			case "orphan":
				if got := len(strings.Fields(left())); got != 3 {
					t.Errorf("%d objects are left, want a ReplicaSet and two Pods", got)
				}
				k.equal("", "get", "replicasets", "-o", "jsonpath={.items[*].metadata.ownerReferences}")
			}
		})
	}
}

// Owners may be of a kind that came when the collector was already running.
func TestGarbageCollectionOfCustomResources(t *testing.T) {
	t.Parallel()
	k := shared(t).kubectl(t)
	kind := createKind(k, "Owner", "owners")
	k.pipe(kind.object("o", 1), "create", "-f", "-")
	uid := k.run("get", kind.resource, "o", "-o", "jsonpath={.metadata.uid}")
	owned := fmt.Sprintf("{ownerReferences: [{apiVersion: %s/v1, kind: Owner, name: o, uid: %s}], name: ", kind.group, uid)
	k.pipe(strings.Replace(configMap("owned", ""), "{name: ", owned, 1), "create", "-f", "-")
	k.pipe(configMap("free", ""), "create", "-f", "-")
	k.run("delete", kind.resource, "o")
	k.run("wait", "--for=delete", "configmap/owned", patiently)
	k.run("get", "configmap", "free")
}

// Deleting a namespace deletes what is in it, of built-in and of custom kinds, and ends.
func TestNamespaceDeletion(t *testing.T) {
	t.Parallel()
	s := shared(t)
	k := s.kubectl(t)
	kind := createKind(k, "Tenant", "tenants")
	doomed := k.in(t)
	doomed.namespace = k.namespace + "-doomed"
	k.run("create", "namespace", doomed.namespace)
	doomed.run("create", "deployment", "web", "--image=web:1")
	doomed.run("create", "secret", "generic", "s")
	doomed.pipe(strings.Replace(kind.object("t", 1), "name: t", "name: t, finalizers: [example.com/wait]", 1), "create", "-f", "-")
	k.pipe(kind.object("t", 1), "create", "-f", "-")

	k.run("delete", "namespace", doomed.namespace, "--wait=false")
	eventually(t, "the custom resource is what the namespace waits for", func(ctx context.Context) error {
		ns, err := s.client.CoreV1().Namespaces().Get(ctx, doomed.namespace, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range ns.Status.Conditions {
			if c.Type == corev1.NamespaceContentRemaining && c.Status == corev1.ConditionTrue && strings.Contains(c.Message, kind.resource+" has 1") {
				return nil
			}
		}
		return fmt.Errorf("conditions: %v", ns.Status.Conditions)
	})
	doomed.fail("", []string{"create", "configmap", "late"}, "because it is being terminated")
	doomed.run("patch", kind.resource, "t", "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
	k.run("wait", "--for=delete", "namespace/"+doomed.namespace, patiently)
	if _, err := s.client.CoreV1().Secrets(doomed.namespace).Get(t.Context(), "s", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the secret of the deleted namespace: %v", err)
	}
	k.run("get", kind.resource, "t")
}

// pods are the pods of a namespace that are not on their way out.
func (s *system) pods(t *testing.T, namespace string) []corev1.Pod {
	t.Helper()
	list, err := s.client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil })
}

// get returns the metadata of an object.
func get(t *testing.T, k *kubectl, resource, name string) *metav1.PartialObjectMetadata {
	t.Helper()
	var object metav1.PartialObjectMetadata
	decode(t, k.run("get", resource, name, "-o", "json"), &object)
	return &object
}
