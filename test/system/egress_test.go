package system

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/catena-dev/catena/sdk/apistage"
	"github.com/catena-dev/catena/sdk/apistage/deepcopy"
	"github.com/catena-dev/catena/test/internal/cluster"
	"github.com/catena-dev/catena/test/internal/egress"
	"github.com/catena-dev/catena/test/internal/kubelet"
)

// farAway is an address that no machine has (RFC 5737): the proxy alone knows where it leads.
const farAway = "198.51.100.7"

// Part is a kind of the API group parts.test, which is a stage.
type Part struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
}

type PartList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Part `json:"items"`
}

func (p *Part) DeepCopyObject() runtime.Object     { return deepcopy.Of(p) }
func (l *PartList) DeepCopyObject() runtime.Object { return deepcopy.Of(l) }

func partsGroup() apistage.Group {
	return apistage.Group{Name: "parts", APIVersion: "parts.test/v1", Resources: []apistage.Resource{apistage.Kind[*Part]{List: &PartList{}}}}
}

// far is a network behind proxies.
type far struct {
	cluster, controlPlane egress.Proxy
	config                string
	dir                   string
	ca                    []byte
}

// newFar starts the proxies: that of the cluster with a protocol over a Unix socket, and that of the control plane
// with HTTP CONNECT over TCP.
func newFar(t *testing.T, protocol string) *far {
	t.Helper()
	dir, err := os.MkdirTemp("", "far") // short, for the socket
	if err != nil {
		t.Fatal(err)
	}
	f := &far{dir: dir, config: filepath.Join(dir, "egress.yaml")}
	t.Cleanup(func() { f.cluster.Close(); f.controlPlane.Close(); _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "proxy.sock")
	serve := f.cluster.ServeConnect
	if protocol == "GRPC" {
		serve = f.cluster.ServeGRPC
	}
	// The stage that is granted the files has a user of its own.
	if err := errorsOf(serve(socket), os.Chmod(socket, 0o777), os.Chmod(dir, 0o755)); err != nil {
		t.Fatal(err)
	}
	// The certificate of a test server is its own authority, and serves for the client too.
	like := httptest.NewTLSServer(nil)
	defer like.Close()
	pair := like.TLS.Certificates[0]
	pool := x509.NewCertPool()
	pool.AddCert(like.Certificate())
	address, err := f.controlPlane.ServeConnectTLS(&tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAnyClientCert})
	if err != nil {
		t.Fatal(err)
	}
	f.ca = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: like.Certificate().Raw})
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{
		"proxy.crt": f.ca, "proxy.key": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}),
		"egress.yaml": fmt.Appendf(nil, `apiVersion: apiserver.k8s.io/v1beta1
kind: EgressSelectorConfiguration
egressSelections:
- name: cluster
  connection: {proxyProtocol: %s, transport: {uds: {udsName: %s}}}
- name: controlplane
  connection:
    proxyProtocol: HTTPConnect
    transport: {tcp: {url: "https://%s", tlsConfig: {caBundle: %[4]s/proxy.crt, clientCert: %[4]s/proxy.crt, clientKey: %[4]s/proxy.key}}}
`, protocol, socket, address, dir),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

// reach makes a server of this machine one that is far away, and returns its address there.
func (f *far) reach(proxy *egress.Proxy, server net.Addr) (address, port string) {
	_, port, _ = net.SplitHostPort(server.String())
	address = net.JoinHostPort(farAway, port)
	proxy.Route(address, server.String())
	return address, port
}

// What concerns nodes, pods and services, and aggregated API servers, goes through the proxy of the cluster. Audit events
// and webhooks with a URL, also those of an API group of the SDK, go through that of the control plane.
func TestEgress(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ path, protocol string }{
		"kube-apiserver":           {kubeAPIServerPath(t), "HTTPConnect"},
		"Catena":                   {asKubeAPIServer(t), "HTTPConnect"},
		"Catena with konnectivity": {asKubeAPIServer(t), "GRPC"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testEgress(t, c.path, newFar(t, c.protocol))
		})
	}
}

func testEgress(t *testing.T, path string, f *far) {
	audit := &auditSink{}
	sink := httptest.NewTLSServer(audit)
	t.Cleanup(sink.Close)
	auditAddress, _ := f.reach(&f.controlPlane, sink.Listener.Addr())
	policy := write(t, "policy.yaml", "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata, resources: [{group: \"\", resources: [namespaces]}]}]\n")
	backend := write(t, "audit.kubeconfig", fmt.Sprintf(`{"kind": "Config", "apiVersion": "v1", "current-context": "a", "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
"users": [{"name": "a"}], "clusters": [{"name": "a", "cluster": {"server": "https://%s", "insecure-skip-tls-verify": true}}]}`, auditAddress))
	flags := map[string]string{"egress-selector-config-file": f.config, "audit-policy-file": policy, "audit-webhook-config-file": backend, "audit-webhook-mode": "blocking-strict"}
	isCatena := path != kubeAPIServerPath(t)
	if isCatena {
		// kube-apiserver would look for the Unix socket of etcd on the network.
		config := string(read(f.config)) + "- name: etcd\n  connection: {proxyProtocol: Direct}\n"
		if err := os.WriteFile(f.config, []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
		flags["catena-config"] = write(t, "catena.yaml", fmt.Sprintf(`apiVersion: catena.dev/v1alpha1
kind: HostConfiguration
pluginDirs: [%s]
stages:
  core: {delegate: parts}
  parts: {lock: off, delegate: extensions, grants: {store: own, network: true, files: [%s]}}
`, plugins(t, "parts"), f.dir))
	}
	k := started(t, path, cluster.Options{Flags: flags})
	admin := k.Config(cluster.Admin)
	if a := do(t, admin, http.MethodPost, "/api/v1/namespaces", `{"metadata": {"name": "audited"}}`); a.code != http.StatusCreated {
		t.Fatalf("create: %d %s", a.code, a.body)
	}
	if !audit.has("audited") {
		t.Errorf("no audit event came through the proxy of the control plane")
	}
	far := map[string]string{}
	far["kubelet"] = testFarNode(t, k, f)
	far["pods and services"] = testFarPod(t, k, f)
	testFarWebhook(t, k, f, isCatena)
	far["aggregated API server"] = testFarExtension(t, k, f)
	dialed := f.cluster.Dialed()
	for what, address := range far {
		if !slices.Contains(dialed, address) {
			t.Errorf("%s: %s was not dialed through the proxy, but %v", what, address, dialed)
		}
	}
	if got := f.controlPlane.Dialed(); !slices.Equal(got, []string{auditAddress, webhookAddress}) {
		t.Errorf("through the proxy of the control plane went %v", got)
	}
}

// auditSink is a webhook for audit events.
type auditSink struct {
	mu    sync.Mutex
	names []string
}

func (s *auditSink) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var list struct {
		Items []struct{ ObjectRef struct{ Name string } }
	}
	if err := json.NewDecoder(r.Body).Decode(&list); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, item := range list.Items {
		s.names = append(s.names, item.ObjectRef.Name)
	}
}

func (s *auditSink) has(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Contains(s.names, name)
}

// testFarNode reaches a pod on a node that is far away: exec, logs, port-forward, and the node itself.
func testFarNode(t *testing.T, k *cluster.KubeAPIServer, f *far) string {
	t.Helper()
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(read(filepath.Join(k.Dir, "ca.crt")))
	node, err := kubelet.Start(t.Context(), k.Config(cluster.Admin), kubelet.Options{Node: "node", Address: farAway, ClientCA: pool})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(node.Stop)
	address, _ := f.reach(&f.cluster, node.Addr())
	if err := kubelet.RunPod(t.Context(), clientset(t, k.Server, cluster.Admin), "node", "default", "pod"); err != nil {
		t.Fatal(err)
	}
	node.Log("default", "pod", "a line\n")
	if out := kubectl(t, k.Server, "exec", "pod", "--", "echo", "hello,", "pod"); out != "hello, pod\n" {
		t.Errorf("exec prints %q", out)
	}
	if out := kubectl(t, k.Server, "logs", "pod"); out != "a line\n" {
		t.Errorf("logs prints %q", out)
	}
	session, err := kubelet.OpenSession(k.Config(cluster.Admin), "default", "pod")
	if err != nil {
		t.Fatal(err)
	}
	echoes(t, session, "over there")
	session.Close()
	for _, path := range []string{"/api/v1/namespaces/default/pods/pod/log", "/api/v1/nodes/node/proxy/containerLogs/default/pod/c"} {
		if a := do(t, k.Config(cluster.Admin), http.MethodGet, path, ""); a.code != http.StatusOK || a.body != "a line\n" {
			t.Errorf("%s: %d %q", path, a.code, a.body)
		}
	}
	forwards(t, k.Server)
	return address
}

// forwards checks that a port of the pod is reached by kubectl port-forward.
func forwards(t *testing.T, s *cluster.Server) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "forwarded") }))
	t.Cleanup(server.Close)
	_, port, _ := net.SplitHostPort(server.Listener.Addr().String())
	config, err := s.Kubeconfig(cluster.Admin)
	if err != nil {
		t.Fatal(err)
	}
	cmd, err := cluster.Kubectl(t.Context(), t.TempDir(), config, "port-forward", "pod/pod", ":"+port)
	if err != nil {
		t.Fatal(err)
	}
	out := &lockedBuffer{}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	local := ""
	eventually(t, "kubectl port-forward", func() bool {
		_, rest, ok := strings.Cut(out.String(), "127.0.0.1:")
		local, _, _ = strings.Cut(rest, " ")
		return ok && local != ""
	}, out.String)
	resp, err := http.Get("http://127.0.0.1:" + local)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	defer resp.Body.Close()
	var body bytes.Buffer
	if _, err := body.ReadFrom(resp.Body); err != nil || body.String() != "forwarded" {
		t.Errorf("through the port: %q (%v)", body.String(), err)
	}
}

// lockedBuffer is a buffer that a command writes.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// testFarPod reaches a server in a pod and behind a service.
func testFarPod(t *testing.T, k *cluster.KubeAPIServer, f *far) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "%s %s", r.Method, r.URL) }))
	t.Cleanup(server.Close)
	address, port := f.reach(&f.cluster, server.Listener.Addr())
	admin := k.Config(cluster.Admin)
	status := fmt.Sprintf(`{"status": {"podIP": %q, "podIPs": [{"ip": %q}]}}`, farAway, farAway)
	if a := do(t, admin, http.MethodPatch, "/api/v1/namespaces/default/pods/pod/status", status, "Content-Type: application/merge-patch+json"); a.code != http.StatusOK {
		t.Fatalf("address of the pod: %d %s", a.code, a.body)
	}
	apply(t, k.Server, strings.NewReplacer("PORT", port, "ADDRESS", farAway).Replace(`
apiVersion: v1
kind: Service
metadata: {name: served, namespace: default}
spec: {ports: [{name: http, port: 80, targetPort: PORT}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: served-1, namespace: default, labels: {kubernetes.io/service-name: served}}
addressType: IPv4
endpoints: [{addresses: [ADDRESS], conditions: {ready: true}, targetRef: {kind: Pod, namespace: default, name: pod}}]
ports: [{name: http, port: PORT}]
`))
	for _, path := range []string{"/api/v1/namespaces/default/pods/pod:" + port + "/proxy/a/b?c=d", "/api/v1/namespaces/default/services/served:http/proxy/a/b?c=d"} {
		var a response
		eventually(t, path, func() bool {
			a = do(t, admin, http.MethodPut, path, "{}")
			return a.code == http.StatusOK
		}, func() string { return a.body })
		if a.body != "PUT /a/b?c=d" {
			t.Errorf("%s: %q", path, a.body)
		}
	}
	return address
}

// testFarWebhook has a webhook asked about a built-in resource and, of Catena, about one of a stage of the SDK.
// Kubernetes takes a webhook with a URL, and not a service, for one of the control plane.
func testFarWebhook(t *testing.T, k *cluster.KubeAPIServer, f *far, parts bool) {
	t.Helper()
	hook := startThinkingWebhook(t, func() {})
	ca := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: hook.Certificate().Raw}))
	if parts {
		rbac := strings.ReplaceAll(string(read(filepath.Join(cluster.Root(), "examples", "wardle", "rbac.yaml"))), "stage:wardle", "stage:parts")
		apply(t, k.Server, rbac)
	}
	// The certificate of a test server is for 127.0.0.1 and example.com.
	f.controlPlane.Route(webhookAddress, hook.Listener.Addr().String())
	apply(t, k.Server, fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: far}
webhooks:
- name: far.example.com
  clientConfig: {url: "https://example.com", caBundle: %s}
  admissionReviewVersions: [v1]
  sideEffects: None
  failurePolicy: Fail
  objectSelector: {matchLabels: {far: "yes"}}
  rules: [{apiGroups: ["*"], apiVersions: ["*"], operations: [CREATE], resources: [configmaps, parts, customresourcedefinitions, apiservices]}]
`, ca))
	paths := map[string]string{
		"/api/v1/namespaces/default/configmaps?dryRun=All":                   `{"metadata": {"name": "far", "labels": {"far": "yes"}}}`,
		"/apis/apiregistration.k8s.io/v1/apiservices?dryRun=All":             `{"metadata": {"name": "v1.far", "labels": {"far": "yes"}}, "spec": {"group": "far", "version": "v1", "groupPriorityMinimum": 1, "versionPriority": 1}}`,
		"/apis/apiextensions.k8s.io/v1/customresourcedefinitions?dryRun=All": `{"metadata": {"name": "mines.example.com", "labels": {"far": "yes"}}, "spec": {"group": "example.com", "scope": "Cluster", "names": {"plural": "mines", "kind": "Mine"}, "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]}}`,
	}
	if parts {
		paths["/apis/parts.test/v1/namespaces/default/parts?dryRun=All"] = `{"apiVersion": "parts.test/v1", "kind": "Part", "metadata": {"name": "far", "labels": {"far": "yes"}}}`
	}
	for path, body := range paths {
		var last response
		eventually(t, path+": the webhook is asked", func() bool {
			before := hook.asked.Load()
			last = do(t, k.Config(cluster.Admin), http.MethodPost, path, body)
			return last.code < 300 && hook.asked.Load() > before
		}, func() string { return last.body })
	}
	kubectl(t, k.Server, "delete", "validatingwebhookconfiguration", "far")
}

const webhookAddress = "example.com:443"

// testFarExtension has an API group served by a server at an address that the proxy alone reaches.
func testFarExtension(t *testing.T, k *cluster.KubeAPIServer, f *far) string {
	t.Helper()
	e := startExtension(t)
	_, port := f.reach(&f.cluster, e.Listener.Addr())
	const name = "extension.far.example.com"
	f.cluster.Route(net.JoinHostPort(name, port), e.Listener.Addr().String())
	apply(t, k.Server, strings.NewReplacer("PORT", port, "externalName: localhost", "externalName: "+name).Replace(extensionManifest))
	var last response
	eventually(t, "the extension is served", func() bool {
		last = do(t, k.Config(cluster.Admin), http.MethodGet, extensionPath+"/things/200", "")
		return last.code == http.StatusOK
	}, func() string { return last.body })
	// An upgrade goes the same way.
	conn := dial(t, k.Server)
	conn.send("GET " + extensionPath + "/things/exec HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer admin-token\r\nConnection: Upgrade\r\nUpgrade: shout\r\n\r\n")
	if resp := conn.response("GET"); resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("upgrade: %s", resp.Status)
	}
	conn.send("far\n")
	if got := conn.line(); got != "FAR\n" {
		t.Errorf("through the upgrade comes %q", got)
	}
	return net.JoinHostPort(name, port)
}
