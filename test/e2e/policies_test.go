package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/catena-dev/catena/test/internal/kubelet"
)

// A quota counts objects of every stage; the controller tells what is used.
func TestQuota(t *testing.T) {
	t.Parallel()
	k := shared(t).kubectl(t)
	kind := createKind(k, "Token", "tokens")
	k.run("wait", "--for=create", "configmap/kube-root-ca.crt", patiently)
	k.run("create", "quota", "q", "--hard=count/configmaps=2,count/secrets=0,count/"+kind.resource+"=1")
	// A server enforces a quota once its cache has it; until then it counts nothing.
	k.run("wait", `--for=jsonpath={.status.used.count/configmaps}=1`, "quota/q", patiently)
	eventuallyPrints(k, func(out string) bool { return strings.Contains(out, "exceeded quota: q") }, "create", "secret", "generic", "s")
	k.run("create", "configmap", "second")
	k.fail("", []string{"create", "configmap", "third"}, "exceeded quota: q, requested: count/configmaps=1, used: count/configmaps=2, limited: count/configmaps=2")
	// The controller finds new kinds every half minute.
	k.run("wait", "--for=jsonpath={.status.used.count/"+strings.ReplaceAll(kind.resource, ".", `\.`)+"}=0", "quota/q", patiently)
	eventuallyPrints(k, func(out string) bool { return strings.Contains(out, "/first created") }, "create", "-f", k.file(kind.object("first", 1)))
	k.fail(kind.object("second", 1), []string{"create", "-f", "-"}, "exceeded quota: q, requested: count/"+kind.resource+"=1")
	k.run("delete", kind.resource, "first")
	eventuallyPrints(k, func(out string) bool { return strings.Contains(out, "/first created") }, "create", "-f", k.file(kind.object("first", 1)))
}

// A policy with a parameter object: both may be of any stage.
func TestPolicyWithParameters(t *testing.T) {
	t.Parallel()
	k := shared(t).kubectl(t)
	kind := createKind(k, "Limit", "limits")
	k.pipe(kind.object("limit", 3), "create", "-f", "-")
	k.pipe(strings.NewReplacer("NAMESPACE", k.namespace, "GROUP", kind.group).Replace(policy), "create", "-f", "-")
	t.Cleanup(func() {
		k.afterTest("delete", "validatingadmissionpolicy,validatingadmissionpolicybinding", k.namespace)
	})
	k.pipe(configMap("settings", ""), "create", "-f", "-")
	refused := func(out string) bool { return strings.Contains(out, "more than 3") }
	eventuallyPrints(k, refused, "create", "--dry-run=server", "-f", k.file(configMap("large", "size: '4'")))
	eventuallyPrints(k, refused, "create", "--dry-run=server", "-f", k.file(strings.Replace(kind.object("large", 4), "metadata: {", "metadata: {labels: {size: '4'}, ", 1)))
	k.pipe(configMap("small", "size: '2'"), "create", "-f", "-")
	k.run("patch", kind.resource, "limit", "--type=merge", "-p", `{"spec":{"size":5}}`)
	eventuallyPrints(k, func(out string) bool { return strings.Contains(out, "configmap/large created") },
		"create", "-f", k.file(configMap("large", "size: '4'")))
}

const policy = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: NAMESPACE}
spec:
  paramKind: {apiVersion: GROUP/v1, kind: Limit}
  matchConstraints:
    resourceRules: [{apiGroups: ["", GROUP], apiVersions: [v1], operations: [CREATE], resources: [configmaps, limits]}]
  variables:
  - name: size
    expression: >-
      has(object.data) && 'size' in object.data ? int(object.data.size) :
      has(object.metadata.labels) && 'size' in object.metadata.labels ? int(object.metadata.labels.size) : 0
  validations:
  - {expression: variables.size <= params.spec.size, messageExpression: "'more than ' + string(params.spec.size)"}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: NAMESPACE}
spec:
  policyName: NAMESPACE
  validationActions: [Deny]
  paramRef: {name: limit, namespace: NAMESPACE, parameterNotFoundAction: Deny}
  matchResources: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NAMESPACE}}}
`

// A node is drained by evictions, which respect the disruption budget.
func TestDrain(t *testing.T) {
	t.Parallel()
	s := shared(t)
	k := s.kubectl(t)
	node := "node-" + k.namespace
	s.cordonedNode(t, kubelet.Options{Node: node, Cordoned: true})
	k.run("run", "pod", "--image=i", "--labels=app=guarded", fmt.Sprintf(`--overrides={"spec":{"nodeName":%q}}`, node))
	k.run("wait", "--for=condition=Ready", "pod/pod", patiently)
	k.run("create", "pdb", "guard", "--selector=app=guarded", "--min-available=1")
	k.run("wait", "--for=jsonpath={.status.currentHealthy}=1", "pdb/guard", patiently)
	drain := []string{"drain", node, "--force", "--timeout=2s"}
	k.fail("", drain, "Cannot evict pod as it would violate the pod's disruption budget")
	k.run("get", "pod", "pod")
	k.run("delete", "pdb", "guard")
	k.contains("drain", k.run("drain", node, "--force", patiently), "pod/pod evicted")
	k.fail("", []string{"get", "pod", "pod"}, `pods "pod" not found`)
}
