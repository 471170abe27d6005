package e2e

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"github.com/catena-dev/catena/test/internal/cluster"
)

// wardle is Kubernetes' sample-apiserver, with the resources flunders and fischers, as a
// process that the aggregator reaches through an APIService.
type wardle struct {
	system  *system
	process *cluster.Process
	args    []string
}

const wardleGroup = "wardle.example.com"

// startWardle starts the server and registers it.
func startWardle(t *testing.T, s *system, k *kubectl) *wardle {
	t.Helper()
	const user = "wardle-server"
	kubeconfig, err := s.certificate(user)
	if err != nil {
		t.Fatal(err)
	}
	etcd, err := s.StartEtcd()
	if err != nil {
		t.Fatal(err)
	}
	ca, certFile, keyFile := newServingCertificate(t, "api.wardle.svc")
	port := freePort(t)
	w := &wardle{system: s, args: []string{
		"--etcd-servers=" + etcd, "--bind-address=127.0.0.1", "--secure-port=" + port,
		"--tls-cert-file=" + certFile, "--tls-private-key-file=" + keyFile,
		"--kubeconfig=" + kubeconfig, "--authentication-kubeconfig=" + kubeconfig, "--authorization-kubeconfig=" + kubeconfig,
	}}
	anywhere := k.in(t)
	anywhere.namespace = "" // that of each object
	anywhere.pipe(strings.NewReplacer("USER", user, "PORT", port, "CA", base64.StdEncoding.EncodeToString(ca)).Replace(wardleObjects), "apply", "-f", "-")
	w.start(t)
	t.Cleanup(func() { w.process.Kill() })
	w.await(t, k)
	return w
}

// wardleObjects are the service, which leads to this machine, and the rights that the
// server needs to ask who its callers are and what they may.
const wardleObjects = `
{apiVersion: v1, kind: Namespace, metadata: {name: wardle}}
---
{apiVersion: v1, kind: Service, metadata: {name: api, namespace: wardle}, spec: {type: ExternalName, externalName: localhost}}
---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1alpha1.wardle.example.com}
spec: {group: wardle.example.com, version: v1alpha1, groupPriorityMinimum: 1000, versionPriority: 15, caBundle: CA,
  service: {name: api, namespace: wardle, port: PORT}}
---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1beta1.wardle.example.com}
spec: {group: wardle.example.com, version: v1beta1, groupPriorityMinimum: 1000, versionPriority: 10, caBundle: CA,
  service: {name: api, namespace: wardle, port: PORT}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: wardle}
rules:
- {apiGroups: [""], resources: [namespaces], verbs: [get, list, watch]}
- {apiGroups: [admissionregistration.k8s.io], resources: ["*"], verbs: [get, list, watch]}
- {apiGroups: [flowcontrol.apiserver.k8s.io], resources: ["*"], verbs: [get, list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: wardle}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: wardle}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: USER}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: wardle-delegator}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "system:auth-delegator"}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: USER}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: wardle, namespace: kube-system}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: extension-apiserver-authentication-reader}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: USER}]
`

func (w *wardle) start(t *testing.T) {
	t.Helper()
	path, err := cluster.Tool("sample-apiserver")
	if err != nil {
		t.Fatal(err)
	}
	if w.process, err = cluster.StartProcess(w.system.Dir, "sample-apiserver", path, w.args...); err != nil {
		t.Fatal(err)
	}
}

func (w *wardle) await(t *testing.T, k *kubectl) {
	t.Helper()
	k.run("wait", "--for=condition=Available", "apiservice/v1alpha1."+wardleGroup, "apiservice/v1beta1."+wardleGroup, patiently)
	pollKubectl(k, []string{"flunders." + wardleGroup}, "api-resources", "-o", "name", "--cached=false")
}

func flunder(name, reference string) string {
	return fmt.Sprintf("apiVersion: %s/v1alpha1\nkind: Flunder\nmetadata: {name: %s}\nspec: {reference: %s}\n", wardleGroup, name, reference)
}
