package system

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/catena-dev/catena/test/internal/cluster"
)

// externalEtcd is a stock etcd, as a process.
type externalEtcd struct {
	dir, url string
	process  *cluster.Process
}

func startExternalEtcd(t *testing.T, args ...string) *externalEtcd {
	t.Helper()
	port, err := cluster.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	e := &externalEtcd{dir: t.TempDir(), url: "http://127.0.0.1:" + port}
	e.start(t, args...)
	t.Cleanup(func() { e.process.Kill() })
	return e
}

func (e *externalEtcd) start(t *testing.T, args ...string) {
	t.Helper()
	path, err := cluster.Tool("etcd")
	if err != nil {
		t.Fatal(err)
	}
	e.process, err = cluster.StartProcess(e.dir, "etcd", path, append([]string{
		"--data-dir", e.data(), "--listen-client-urls", e.url, "--advertise-client-urls", e.url, "--listen-peer-urls", "http://127.0.0.1:0",
		"--unsafe-no-fsync", "--log-level", "error",
	}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
}

func (e *externalEtcd) data() string { return filepath.Join(e.dir, "data") }

// serviceAccountToken makes a service account and returns a token of it.
func serviceAccountToken(t *testing.T, client kubernetes.Interface) string {
	t.Helper()
	account, err := client.CoreV1().ServiceAccounts("kube-system").Create(t.Context(),
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := client.CoreV1().ServiceAccounts("kube-system").CreateToken(t.Context(), account.Name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return r.Status.Token
}

// accepts is nil if a server accepts a service account's token.
func accepts(t *testing.T, c *cluster.Catena, token string) error {
	t.Helper()
	config := c.Config("")
	config.BearerToken = token
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	return err
}

// A second host on the same etcd is refused with keys of its own, and serves the same users once it has joined.
func TestJoin(t *testing.T) {
	t.Parallel()
	etcd := startExternalEtcd(t)
	set := []string{"store.endpoints=" + etcd.url}
	first := catena(t, cluster.Options{Set: set})
	bin, err := cluster.Bin()
	if err != nil {
		t.Fatal(err)
	}
	_, err = first.Command(t.Context(), "join", "catena-join-1.x")
	if err == nil || !strings.Contains(err.Error(), "the token is not complete") {
		t.Errorf("join with half a token: %v", err)
	}
	token, err := first.Command(t.Context(), "token", "create")
	if err != nil {
		t.Fatal(err)
	}
	second := catena(t, cluster.Options{Set: set, Prepare: func(c *cluster.Catena) error {
		_, message, code := result(t, filepath.Join(bin, "catena"), c.Args(bin)...)
		if code != 1 || !strings.Contains(message, "this host does not have the keys of cluster ") || !strings.Contains(message, "catena join TOKEN") {
			t.Errorf("start without the keys: exit code %d and\n%s", code, message)
		}
		if _, err := os.Stat(filepath.Join(c.DataDir(), "pki")); err == nil {
			t.Error("the refused start has made keys")
		}
		out, err := c.Command(t.Context(), append([]string{"join", token}, c.Args(bin)[1:]...)...)
		if err == nil && !strings.HasPrefix(out, "joined cluster ") {
			t.Errorf("join prints %q", out)
		}
		return err
	}})
	if err := accepts(t, second, serviceAccountToken(t, clientset(t, first.Server, cluster.Admin))); err != nil {
		t.Errorf("token of the first host at the second: %v", err)
	}
	if err := accepts(t, first, serviceAccountToken(t, clientset(t, second.Server, cluster.Admin))); err != nil {
		t.Errorf("token of the second host at the first: %v", err)
	}
	list, err := second.Command(t.Context(), "token", "list")
	if err != nil || strings.Count(list, "\n") != 2 {
		t.Errorf("tokens: %v\n%s", err, list)
	}
	third := filepath.Join(t.TempDir(), "data") // with keys of its own, from another cluster
	other := catena(t, cluster.Options{})
	if err := os.Mkdir(third, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(filepath.Join(third, "pki"), os.DirFS(filepath.Join(other.DataDir(), "pki"))); err != nil {
		t.Fatal(err)
	}
	args := append(first.Args(bin), "--data-dir", third)
	if _, message, code := result(t, filepath.Join(bin, "catena"), args...); code != 1 ||
		!strings.Contains(message, "the keys of this host are not those of cluster ") || !strings.Contains(message, "service-account-key-file") {
		t.Errorf("start with keys of another cluster: exit code %d and\n%s", code, message)
	}
	if out, err := other.Command(t.Context(), "token", "create"); err == nil || !strings.Contains(err.Error(), "embedded etcd serves one host alone") {
		t.Errorf("token of a host with an embedded etcd: %q, %v", out, err)
	}
}

// Everything in a destroyed data directory comes back: objects, and what they are signed with.
func TestSnapshotOfADestroyedHost(t *testing.T) {
	t.Parallel()
	c := catena(t, cluster.Options{})
	client := clientset(t, c.Server, cluster.Admin)
	token := serviceAccountToken(t, client)
	config, err := os.ReadFile(c.AdminKubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "before"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "snapshot.tar")
	if _, err := c.Command(t.Context(), "snapshot", "save", file); err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "after"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Command(t.Context(), "snapshot", "restore", file); err == nil || !strings.Contains(err.Error(), "is in use by another catena host") {
		t.Errorf("restore while the host runs: %v", err)
	}
	c.KillAll()
	if err := os.RemoveAll(c.DataDir()); err != nil {
		t.Fatal(err)
	}
	if out, err := c.Command(t.Context(), "snapshot", "restore", file); err != nil || !strings.Contains(out, "restored") {
		t.Fatalf("restore: %q, %v", out, err)
	}
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	client = clientset(t, c.Server, cluster.Admin)
	list, err := client.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, o := range list.Items {
		names[o.Name] = true
	}
	if !names["before"] || names["after"] {
		t.Errorf("objects after the restore: %v", names)
	}
	if err := accepts(t, c, token); err != nil {
		t.Errorf("service account token of before: %v", err)
	}
	old := filepath.Join(t.TempDir(), "old.kubeconfig")
	if err := os.WriteFile(old, config, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd, err := cluster.Kubectl(t.Context(), t.TempDir(), old, "--server", c.URL, "get", "namespaces")
	if err != nil {
		t.Fatal(err)
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("admin.kubeconfig of before: %v %s", err, out)
	}
}
