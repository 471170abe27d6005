package system

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/cert"
	"k8s.io/kubernetes/cmd/kubeadm/app/apis/kubeadm"
	"k8s.io/kubernetes/cmd/kubeadm/app/phases/certs"
	"k8s.io/kubernetes/cmd/kubeadm/app/phases/controlplane"
	"sigs.k8s.io/yaml"

	"github.com/catena-dev/catena/test/internal/cluster"
)

const (
	kubeadmPKI = "/etc/kubernetes/pki"
	// certVolume is the directory of --cert-dir, by default, and so the one for which Catena needs a volume.
	certVolume = "/var/run/kubernetes"
)

// kubeadmConfig is what kubeadm has by default, on a machine with an etcd of kubeadm.
func kubeadmConfig(pki string) *kubeadm.InitConfiguration {
	return &kubeadm.InitConfiguration{
		LocalAPIEndpoint: kubeadm.APIEndpoint{AdvertiseAddress: "192.0.2.10", BindPort: 6443},
		NodeRegistration: kubeadm.NodeRegistrationOptions{Name: "node"},
		ClusterConfiguration: kubeadm.ClusterConfiguration{
			KubernetesVersion: "v1.37.0", CertificatesDir: pki, Etcd: kubeadm.Etcd{Local: &kubeadm.LocalEtcd{}},
			Networking: kubeadm.Networking{ServiceSubnet: "10.96.0.0/12", DNSDomain: "cluster.local"},
		},
	}
}

// staticPod returns the manifest in configs.
func staticPod(t *testing.T) corev1.Pod {
	t.Helper()
	return readPod(t, filepath.Join(cluster.Root(), "configs", "static-pod", "kube-apiserver.yaml"))
}

func readPod(t *testing.T, file string) corev1.Pod {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var pod corev1.Pod
	if err := yaml.UnmarshalStrict(text, &pod); err != nil {
		t.Fatal(err)
	}
	return pod
}

// The manifest is what kubeadm writes with the patch that is beside it.
func TestStaticPodIsKubeadms(t *testing.T) {
	t.Parallel()
	got, init, dir := staticPod(t), kubeadmConfig(kubeadmPKI), t.TempDir()
	patches := filepath.Join(cluster.Root(), "configs", "static-pod", "patches")
	err := controlplane.CreateStaticPodFiles(dir, patches, &init.ClusterConfiguration, &init.LocalAPIEndpoint, false, "kube-apiserver")
	if err != nil {
		t.Fatal(err)
	}
	want := readPod(t, filepath.Join(dir, "kube-apiserver.yaml"))
	c := &want.Spec.Containers[0]
	// More directories of certificates are mounted if they are there where kubeadm runs.
	isOptional := func(name string) bool { return name != "k8s-certs" && name != "ca-certs" && name != "catena" }
	want.Spec.Volumes = slices.DeleteFunc(want.Spec.Volumes, func(v corev1.Volume) bool { return isOptional(v.Name) })
	c.VolumeMounts = slices.DeleteFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return isOptional(m.Name) })

	c.Env = nil // proxies of the machine
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("configs/static-pod/kube-apiserver.yaml is not kubeadm's manifest (-want +got):\n%s", diff)
	}
}

// The command of the manifest runs with the certificates that kubeadm makes, on an etcd with kubeadm's, and its probes
// succeed.
func TestStaticPod(t *testing.T) {
	t.Parallel()
	pod, dir := staticPod(t), t.TempDir()
	pki := filepath.Join(dir, "pki")
	if err := certs.CreatePKIAssets(kubeadmConfig(pki)); err != nil {
		t.Fatal(err)
	}
	port, err := cluster.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	paths := strings.NewReplacer(kubeadmPKI, pki, "https://127.0.0.1:2379", startKubeadmEtcd(t, dir, pki), "--secure-port=6443", "--secure-port="+port)
	command := pod.Spec.Containers[0].Command
	args := []string{"--cert-dir=" + filepath.Join(dir, "certs")} // as the volume, which is where it is by default
	for _, arg := range command[1:] {
		args = append(args, paths.Replace(arg))
	}
	if command[0] != filepath.Base(asKubeAPIServer(t)) {
		t.Errorf("the command is %s", command[0])
	}
	p := startProgram(t, dir, command[0], asKubeAPIServer(t), args...)
	client := kubeadmClient(t, pki)
	for _, probe := range []*corev1.Probe{pod.Spec.Containers[0].StartupProbe, pod.Spec.Containers[0].ReadinessProbe, pod.Spec.Containers[0].LivenessProbe} {
		awaitProbe(t, p, client, "https://127.0.0.1:"+port+probe.HTTPGet.Path)
	}
	if err := p.Stop(); err != nil {
		t.Error(err)
	}
	if got := namesIn(t, filepath.Join(dir, "certs")); !slices.Equal(got, []string{"catena"}) {
		t.Errorf("in the volume are %v", got)
	}
}

// startProgram starts a program in the directory. The test prints its log if it fails.
func startProgram(t *testing.T, dir, name, path string, args ...string) *cluster.Process {
	t.Helper()
	p, err := cluster.StartProcess(dir, name, path, args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("log of %s:\n%s", name, cluster.Tail(p.Log, 40))
		}
	})
	return p
}

// startKubeadmEtcd starts etcd with the certificates of kubeadm, and returns its URL.
func startKubeadmEtcd(t *testing.T, dir, pki string) string {
	t.Helper()
	path, err := cluster.Tool("etcd")
	if err != nil {
		t.Fatal(err)
	}
	var urls [2]string
	for i := range urls {
		port, err := cluster.FreePort()
		if err != nil {
			t.Fatal(err)
		}
		urls[i] = "https://127.0.0.1:" + port
	}
	in := func(name string) string { return filepath.Join(pki, "etcd", name) }
	startProgram(t, dir, "etcd", path, "--data-dir="+filepath.Join(dir, "etcd"), "--unsafe-no-fsync",
		"--listen-client-urls="+urls[0], "--advertise-client-urls="+urls[0],
		"--listen-peer-urls="+urls[1], "--initial-advertise-peer-urls="+urls[1], "--initial-cluster=default="+urls[1],
		"--cert-file="+in("server.crt"), "--key-file="+in("server.key"), "--client-cert-auth", "--trusted-ca-file="+in("ca.crt"),
		"--peer-cert-file="+in("peer.crt"), "--peer-key-file="+in("peer.key"), "--peer-client-cert-auth", "--peer-trusted-ca-file="+in("ca.crt"))
	return urls[0]
}

// kubeadmClient is a client without a certificate that trusts kubeadm's authority.
func kubeadmClient(t *testing.T, pki string) *http.Client {
	t.Helper()
	roots, err := cert.NewPool(filepath.Join(pki, "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: "kubernetes.default.svc"}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 5 * time.Second}
}

// awaitProbe repeats a probe until it succeeds.
func awaitProbe(t *testing.T, p *cluster.Process, client *http.Client, url string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	for {
		resp, err := client.Get(url)
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return
			}
			err = fmt.Errorf("%s: %s", url, resp.Status)
		}
		select {
		case <-p.Done:
			t.Fatalf("the server has ended: %v", err)
		case <-ctx.Done():
			t.Fatal(err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}
