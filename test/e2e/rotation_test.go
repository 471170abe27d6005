package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/catena-dev/catena/test/internal/cluster"
)

// A serving certificate, the authorities of clients and the keys of encryption are
// replaced while the server runs, and no client notices.
func TestRotation(t *testing.T) {
	t.Parallel()
	r := startRotation(t)
	done := r.use(t)
	t.Run("of what", func(t *testing.T) {
		t.Run("serving certificate", r.servingCertificate)
		t.Run("authorities of clients", r.authorities)
		t.Run("encryption", r.encryption)
	})
	done()
}

// rotation is a server whose files the test replaces.
type rotation struct {
	*cluster.Catena
	etcd, etcdCA              string
	servers, before, after    *signer
	certFile, keyFile, caFile string
	encryptionFile            string
}

func startRotation(t *testing.T) *rotation {
	t.Helper()
	r := &rotation{servers: newSigner(t, "servers"), before: newSigner(t, "before"), after: newSigner(t, "after")}
	r.etcd, r.etcdCA = startTLSEtcd(t)
	certPEM, keyPEM := r.servers.issue(t, "first", "", x509.ExtKeyUsageServerAuth)
	r.certFile, r.keyFile = testFile(t, "tls.crt", string(certPEM)), testFile(t, "tls.key", string(keyPEM))
	r.caFile = testFile(t, "clients.crt", string(r.before.pem()))
	r.encryptionFile = testFile(t, "encryption.yaml", keysOf("one"))
	var err error
	r.Catena, err = cluster.StartCatena(t.Context(), cluster.Options{
		ConfigFile: testFile(t, "catena.yaml", plainConfig),
		Flags: map[string]string{
			"tls-cert-file": r.certFile, "tls-private-key-file": r.keyFile, "client-ca-file": r.caFile,
			"encryption-provider-config": r.encryptionFile, "encryption-provider-config-automatic-reload": "true",
		},
		Set: []string{"store.endpoints=" + r.etcd, "store.caFile=" + r.etcdCA},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Stop(t.Failed()); err != nil {
			t.Error(err)
		}
	})
	return r
}

// use reads and writes, on a new connection each time, until the result is called.
func (r *rotation) use(t *testing.T) (done func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended, count := make(chan error, 1), 0
	go func() {
		pace := time.NewTicker(100 * time.Millisecond)
		defer pace.Stop()
		for ; ctx.Err() == nil; count++ {
			<-pace.C
			if err := r.once(fmt.Sprint("used-", count)); err != nil {
				ended <- fmt.Errorf("request %d: %w", count, err)
				return
			}
		}
		ended <- nil
	}()
	return func() {
		t.Helper()
		cancel()
		if err := <-ended; err != nil || count < 10 {
			t.Errorf("a client of the server, %d times: %v", count, err)
		}
	}
}

func (r *rotation) once(name string) error {
	config := r.fresh(cluster.Admin)
	transport, err := rest.HTTPClientFor(config)
	if err != nil {
		return err
	}
	defer transport.CloseIdleConnections()
	client, err := kubernetes.NewForConfigAndClient(config, transport)
	if err != nil {
		return err
	}
	ctx := context.Background()
	secrets := client.CoreV1().Secrets("default")
	_, err = secrets.Create(ctx, secret(name), metav1.CreateOptions{})
	if err == nil {
		_, err = secrets.Get(ctx, name, metav1.GetOptions{})
	}
	return errors.Join(err, secrets.Delete(ctx, name, metav1.DeleteOptions{}))
}

// fresh is a configuration whose clients share no connection with others.
func (r *rotation) fresh(user string) *rest.Config {
	c := r.Config(user)
	c.CAData = r.servers.pem()
	c.Dial = (&net.Dialer{}).DialContext
	return c
}

func (r *rotation) servingCertificate(t *testing.T) {
	t.Parallel()
	served := func() string {
		conn, err := tls.Dial("tcp", strings.TrimPrefix(r.URL, "https://"), &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			return err.Error()
		}
		defer conn.Close()
		return conn.ConnectionState().PeerCertificates[0].Subject.CommonName
	}
	if got := served(); got != "first" {
		t.Errorf("the certificate is %q", got)
	}
	certPEM, keyPEM := r.servers.issue(t, "second", "", x509.ExtKeyUsageServerAuth)
	replaceFile(t, r.keyFile, keyPEM)
	replaceFile(t, r.certFile, certPEM)
	eventually(t, "the new certificate is served", func(context.Context) error {
		if got := served(); got != "second" {
			return fmt.Errorf("it is %q", got)
		}
		return nil
	})
}

// The authority of before is joined by another, and then leaves.
func (r *rotation) authorities(t *testing.T) {
	t.Parallel()
	old, next := r.clientOf(t, r.before), r.clientOf(t, r.after)
	expect := func(what string, c kubernetes.Interface, accepted bool) {
		t.Helper()
		eventually(t, what, func(ctx context.Context) error {
			user, err := whoAmI(ctx, c)
			switch {
			case err == nil && accepted && user.Username == "rotated":
				return nil
			case !accepted && apierrors.IsUnauthorized(err):
				return nil
			}
			return fmt.Errorf("the user is %q (%v)", user.Username, err)
		})
	}
	expect("the old authority is known", old, true)
	expect("the new authority is not", next, false)
	replaceFile(t, r.caFile, append(r.before.pem(), r.after.pem()...))
	expect("the new authority is known", next, true)
	expect("the old one still is", old, true)
	replaceFile(t, r.caFile, r.after.pem())
	expect("the old authority is not known", old, false)
	expect("the new one is", next, true)
	// Servers behind the aggregator learn it from core.
	admin := withToken(t, r.Catena, r.Config(cluster.Admin).BearerToken)
	eventually(t, "core has published the authorities", func(ctx context.Context) error {
		m, err := admin.CoreV1().ConfigMaps("kube-system").Get(ctx, "extension-apiserver-authentication", metav1.GetOptions{})
		if err == nil && !strings.Contains(m.Data["client-ca-file"], string(r.after.pem())) {
			err = fmt.Errorf("they are %q", m.Data["client-ca-file"])
		}
		return err
	})
}

// clientOf has a certificate of the authority.
func (r *rotation) clientOf(t *testing.T, s *signer) kubernetes.Interface {
	t.Helper()
	config := rest.AnonymousClientConfig(r.fresh(cluster.Admin))
	config.CertData, config.KeyData = s.issue(t, "rotated", "devs", x509.ExtKeyUsageClientAuth)
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// New secrets get the new key, and the old one is still known.
func (r *rotation) encryption(t *testing.T) {
	t.Parallel()
	etcd := etcdClient(t, r.etcd, r.etcdCA)
	admin := withToken(t, r.Catena, r.Config(cluster.Admin).BearerToken).CoreV1().Secrets("default")
	encryptedWith := func(ctx context.Context, name, key string) error {
		stored, err := etcd.Get(ctx, "/registry/secrets/default/"+name)
		if err != nil || len(stored.Kvs) != 1 {
			return fmt.Errorf("in etcd: %v, %w", stored, err)
		}
		if value := stored.Kvs[0].Value; !bytes.HasPrefix(value, []byte("k8s:enc:aesgcm:v1:"+key+":")) {
			return fmt.Errorf("%s is stored as %.40q", name, value)
		}
		return nil
	}
	if _, err := admin.Create(t.Context(), secret("old"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := encryptedWith(t.Context(), "old", "one"); err != nil {
		t.Error(err)
	}
	replaceFile(t, r.encryptionFile, []byte(keysOf("two", "one")))
	n := 0
	eventually(t, "a new secret has the new key", func(ctx context.Context) error {
		n++
		name := fmt.Sprint("new-", n)
		if _, err := admin.Create(ctx, secret(name), metav1.CreateOptions{}); err != nil {
			return err
		}
		return encryptedWith(ctx, name, "two")
	})
	if err := encryptedWith(t.Context(), "old", "one"); err != nil {
		t.Error(err)
	}
	if _, err := admin.Get(t.Context(), "old", metav1.GetOptions{}); err != nil {
		t.Errorf("the old secret: %v", err)
	}
}

func etcdClient(t *testing.T, endpoint, caFile string) *clientv3.Client {
	t.Helper()
	ca, err := os.ReadFile(caFile)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	etcd, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, TLS: &tls.Config{RootCAs: roots}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = etcd.Close() })
	return etcd
}
