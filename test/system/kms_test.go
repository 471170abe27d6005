package system

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	kmsapi "k8s.io/kms/apis/v2"

	"github.com/catena-dev/catena/test/internal/cluster"
)

// kms is a key management service, version 2, on a Unix socket. Its cipher is none worth the name.
type kms struct {
	kmsapi.UnimplementedKeyManagementServiceServer
	socket string
	server *grpc.Server
	// hangs says that it does not respond.
	hangs atomic.Bool
	end   chan struct{}
}

func startKMS(t *testing.T) *kms {
	t.Helper()
	dir, err := os.MkdirTemp("", "kms") // the path of a socket has to be short
	if err != nil {
		t.Fatal(err)
	}
	k := &kms{socket: filepath.Join(dir, "kms.sock"), end: make(chan struct{})}
	k.serve(t)
	t.Cleanup(func() {
		close(k.end)
		k.server.Stop()
		_ = os.RemoveAll(dir)
	})
	return k
}

// serve begins to serve, again after the server was stopped.
func (k *kms) serve(t *testing.T) {
	t.Helper()
	_ = os.Remove(k.socket)
	l, err := net.Listen("unix", k.socket)
	if err != nil {
		t.Fatal(err)
	}
	k.server = grpc.NewServer(grpc.Creds(insecure.NewCredentials()))
	kmsapi.RegisterKeyManagementServiceServer(k.server, k)
	go func(s *grpc.Server) { _ = s.Serve(l) }(k.server)
}

func (k *kms) wait(ctx context.Context) error {
	if !k.hangs.Load() {
		return nil
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-k.end:
		return errors.New("ended")
	}
}

func (k *kms) Status(ctx context.Context, _ *kmsapi.StatusRequest) (*kmsapi.StatusResponse, error) {
	return &kmsapi.StatusResponse{Version: "v2", Healthz: "ok", KeyId: "key"}, k.wait(ctx)
}

func (k *kms) Encrypt(ctx context.Context, r *kmsapi.EncryptRequest) (*kmsapi.EncryptResponse, error) {
	return &kmsapi.EncryptResponse{Ciphertext: turned(r.GetPlaintext()), KeyId: "key"}, k.wait(ctx)
}

func (k *kms) Decrypt(ctx context.Context, r *kmsapi.DecryptRequest) (*kmsapi.DecryptResponse, error) {
	return &kmsapi.DecryptResponse{Plaintext: turned(r.GetCiphertext())}, k.wait(ctx)
}

// turned is its own inverse.
func turned(text []byte) []byte {
	out := bytes.Clone(text)
	for i := range out {
		out[i] ^= 0x5a
	}
	return out
}

// encryption is a configuration for secrets and widgets with these providers.
func encryption(providers ...string) string {
	return "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: [secrets, widgets.test.example.com]\n  providers: [" + strings.Join(providers, ", ") + "]\n"
}

const localKey = "{aesgcm: {keys: [{name: local, secret: MDEyMzQ1Njc4OWFiY2RlZg==}]}}"

func (k *kms) provider() string {
	return fmt.Sprintf("{kms: {apiVersion: v2, name: service, endpoint: %q, timeout: 1s}}", "unix://"+k.socket)
}

// encryptionPatience is longer than the minute after which Kubernetes looks at the file, and at a service that was well, again.
const encryptionPatience = 4 * time.Minute

// Secrets and custom resources are encrypted by a service, or with other keys once the file has changed, which all stages notice; events are
// in an etcd of their own. What kube-apiserver reports of a service that hangs or dies, or of a file that is invalid, Catena does.
func TestEncryptionAtRest(t *testing.T) {
	t.Parallel()
	for name, path := range map[string]string{"kube-apiserver": kubeAPIServerPath(t), "catena": asKubeAPIServer(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := startEncrypted(t, path)
			e.stored(t, "first", "k8s:enc:kms:v2:service:")
			e.otherEtcd(t)
			e.badService(t)
			e.newKeys(t)
			e.badFile(t)
		})
	}
}

type encrypted struct {
	*cluster.KubeAPIServer
	service            *kms
	file               string
	etcd, etcdOfEvents *clientv3.Client
}

func startEncrypted(t *testing.T, path string) *encrypted {
	t.Helper()
	e := &encrypted{service: startKMS(t)}
	e.file = write(t, "encryption.yaml", encryption(e.service.provider(), "{identity: {}}"))
	events, err := cluster.NewKubeAPIServer(cluster.Options{}) // for its etcd
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = events.Stop(false) })
	e.KubeAPIServer = startCommandLine(t, path, map[string]string{
		"encryption-provider-config": e.file, "encryption-provider-config-automatic-reload": "true",
		"etcd-servers-overrides": "/events#unix://" + filepath.Join(events.Dir, "etcd.sock"), "goaway-chance": "0.02",
	})
	e.etcd, e.etcdOfEvents = etcdOf(t, e.Dir), etcdOf(t, events.Dir)
	apply(t, e.Server, widgets)
	awaitWidgets(t, e.Server)
	return e
}

func etcdOf(t *testing.T, dir string) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{"unix://" + filepath.Join(dir, "etcd.sock")}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

const (
	secretsPath = "/api/v1/namespaces/default/secrets"
	widgetsPath = "/apis/test.example.com/v1/namespaces/default/widgets"
)

// put writes a secret and a widget, or updates them, and returns what etcd has.
func (e *encrypted) put(t *testing.T, name string) (values []string) {
	t.Helper()
	admin := e.Config(cluster.Admin)
	for path, body := range map[string]string{
		secretsPath: fmt.Sprintf(`{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": %q}, "stringData": {"a": "plaintext-word"}}`, name),
		widgetsPath: fmt.Sprintf(`{"apiVersion": "test.example.com/v1", "kind": "Widget", "metadata": {"name": %q}, "status": {"a": "plaintext-word"}}`, name),
	} {
		if r := do(t, admin, http.MethodPatch, path+"/"+name+"?fieldManager=m&force=true", body, "Content-Type: application/apply-patch+yaml"); r.code >= 300 {
			t.Fatalf("%s/%s: %d %s", path, name, r.code, r.body)
		}
	}
	for _, key := range []string{"/registry/secrets/default/" + name, "/registry/test.example.com/widgets/default/" + name} {
		stored, err := e.etcd.Get(t.Context(), key)
		if err != nil || len(stored.Kvs) != 1 {
			t.Fatalf("%s: %v, %v", key, stored, err)
		}
		values = append(values, string(stored.Kvs[0].Value))
	}
	return values
}

// stored waits until what is written begins with a prefix in etcd.
func (e *encrypted) stored(t *testing.T, name, prefix string) {
	t.Helper()
	var values []string
	within4Minutes(t, name+" is stored with "+prefix, func() bool {
		values = e.put(t, name)
		return strings.HasPrefix(values[0], prefix) && strings.HasPrefix(values[1], prefix)
	}, func() string { return fmt.Sprintf("%.60q", values) })
}

func within4Minutes(t *testing.T, what string, ok func() bool, explain func() string) {
	t.Helper()
	for deadline := time.Now().Add(encryptionPatience); !ok(); time.Sleep(200 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s: %s", encryptionPatience, what, explain())
		}
	}
}

func (e *encrypted) otherEtcd(t *testing.T) {
	t.Helper()
	r := do(t, e.Config(cluster.Admin), http.MethodPost, "/api/v1/namespaces/default/events", `{"metadata": {"name": "event"}, "involvedObject": {"namespace": "default"}}`)
	here, err := e.etcd.Get(t.Context(), "/registry/events/default/event")
	there, err2 := e.etcdOfEvents.Get(t.Context(), "/registry/events/default/event")
	if err := errors.Join(err, err2); err != nil || r.code != 201 || here.Count != 0 || there.Count != 1 {
		t.Errorf("event: %d, %v in the main etcd, %v in its own (%v)", r.code, here, there, err)
	}
}

// badService makes the service hang, and then end: both are seen in /readyz, and are over when it is back.
func (e *encrypted) badService(t *testing.T) {
	t.Helper()
	ready := func(want int) {
		t.Helper()
		var r response
		within4Minutes(t, fmt.Sprintf("/readyz is %d", want), func() bool {
			r = do(t, e.Config(cluster.Admin), http.MethodGet, "/readyz?verbose", "")
			return r.code == want
		}, func() string { return r.body })
		if failed := strings.Contains(r.body, "kms-providers failed: reason withheld"); failed != (want == 500) {
			t.Errorf("readyz is %s", r.body)
		}
	}
	ready(200)
	e.service.hangs.Store(true)
	ready(500)
	e.put(t, "first") // with the key that is known
	e.service.hangs.Store(false)
	ready(200)
	e.service.server.Stop()
	ready(500)
	e.service.serve(t)
	ready(200)
}

// newKeys replaces the service by a key, and rewrites what is there.
func (e *encrypted) newKeys(t *testing.T) {
	t.Helper()
	replace(t, e.file, encryption(localKey, e.service.provider()))
	e.stored(t, "second", "k8s:enc:aesgcm:v1:local:")
	for _, list := range []string{secretsPath, widgetsPath} { // migration: every object is written as it is
		path := list + "/first"
		r := do(t, e.Config(cluster.Admin), http.MethodGet, path, "")
		if r := do(t, e.Config(cluster.Admin), http.MethodPut, path, r.body); r.code != 200 {
			t.Errorf("%s: %d %s", path, r.code, r.body)
		}
	}
	for _, key := range []string{"/registry/secrets/", "/registry/test.example.com/widgets/"} {
		all, err := e.etcd.Get(t.Context(), key, clientv3.WithPrefix())
		if err != nil || all.Count != 2 {
			t.Fatalf("%s: %v, %v", key, all, err)
		}
		for _, kv := range all.Kvs {
			if !strings.HasPrefix(string(kv.Value), "k8s:enc:aesgcm:v1:local:") {
				t.Errorf("%s is stored as %.40q", kv.Key, kv.Value)
			}
		}
	}
}

// badFile makes the file invalid: the keys stay, and the metric says so.
func (e *encrypted) badFile(t *testing.T) {
	t.Helper()
	const metric = "apiserver_encryption_config_controller_automatic_reloads_total"
	admin := e.Config(cluster.Admin)
	if n := counter(t, admin, metric, `status="success"`); n < 1 {
		t.Errorf("%s has %v successes", metric, n)
	}
	replace(t, e.file, "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources: [{resources: [secrets], providers: [{odd: {}}]}]\n")
	within4Minutes(t, "the failure is counted", func() bool { return counter(t, admin, metric, `status="failure"`) > 0 }, func() string { return "" })
	e.stored(t, "third", "k8s:enc:aesgcm:v1:local:")
	if log, err := os.ReadFile(e.Process().Log); err != nil || !bytes.Contains(log, []byte(`unknown field`)) {
		t.Errorf("the log does not say what is wrong with the file (%v)", err)
	}
}

// replace puts a file in the place of another at one point in time.
func replace(t *testing.T, path, text string) {
	t.Helper()
	if err := errors.Join(os.WriteFile(path+".new", []byte(text), 0o600), os.Rename(path+".new", path)); err != nil {
		t.Fatal(err)
	}
}
