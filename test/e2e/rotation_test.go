package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	"github.com/catena-dev/catena/test/internal/cluster"
)

// A serving certificate, the authorities of clients and of front proxies, the certificate as which the aggregator calls
// servers, and the keys of encryption are replaced while the server runs, and no client notices.
func TestRotation(t *testing.T) {
	t.Parallel()
	r := startRotation(t)
	done := r.use(t)
	t.Run("of what", func(t *testing.T) {
		t.Run("serving certificate", r.servingCertificate)
		t.Run("authorities of clients", r.authorities)
		t.Run("authorities of front proxies", r.frontProxies)
		t.Run("certificate of the aggregator", r.aggregator)
		t.Run("encryption", r.encryption)
	})
	done()
}

// rotation is a server whose files the test replaces.
type rotation struct {
	*cluster.Catena
	etcd, etcdCA              string
	servers, before, after    *signer
	proxies, laterProxies     *signer
	certFile, keyFile, caFile string
	encryptionFile            string
	proxyCAFile               string
	aggregatorCert            [2]string // and its key
}

func startRotation(t *testing.T) *rotation {
	t.Helper()
	r := &rotation{servers: newSigner(t, "servers"), before: newSigner(t, "before"), after: newSigner(t, "after")}
	r.proxies, r.laterProxies = newSigner(t, "proxies"), newSigner(t, "later proxies")
	r.etcd, r.etcdCA = startTLSEtcd(t)
	certPEM, keyPEM := r.servers.issue(t, "first", "", x509.ExtKeyUsageServerAuth)
	r.certFile, r.keyFile = testFile(t, "tls.crt", string(certPEM)), testFile(t, "tls.key", string(keyPEM))
	r.caFile = testFile(t, "clients.crt", string(r.before.pem()))
	r.encryptionFile = testFile(t, "encryption.yaml", keysOf("one"))
	r.proxyCAFile = testFile(t, "proxies.crt", string(r.proxies.pem()))
	certPEM, keyPEM = r.proxies.issue(t, "aggregator-1", "", x509.ExtKeyUsageClientAuth)
	r.aggregatorCert = [2]string{testFile(t, "aggregator.crt", string(certPEM)), testFile(t, "aggregator.key", string(keyPEM))}
	var err error
	r.Catena, err = cluster.StartCatena(t.Context(), cluster.Options{
		ConfigFile: testFile(t, "catena.yaml", plainConfig),
		Flags: map[string]string{
			"tls-cert-file": r.certFile, "tls-private-key-file": r.keyFile, "client-ca-file": r.caFile,
			"encryption-provider-config": r.encryptionFile, "encryption-provider-config-automatic-reload": "true",
			"requestheader-client-ca-file": r.proxyCAFile, "requestheader-username-headers": "X-Remote-User",
			"proxy-client-cert-file": r.aggregatorCert[0], "proxy-client-key-file": r.aggregatorCert[1],
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
	connections, err := rest.HTTPClientFor(config)
	if err != nil {
		return err
	}
	defer connections.CloseIdleConnections()
	client, err := kubernetes.NewForConfigAndClient(config, connections)
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
	r.replaceAuthority(t, r.caFile, "rotated", nil, r.before, r.after)
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

// The same, of those who may say who the user is.
func (r *rotation) frontProxies(t *testing.T) {
	t.Parallel()
	says := func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			req = req.Clone(req.Context())
			req.Header.Set("X-Remote-User", "proxied")
			return next.RoundTrip(req)
		})
	}
	r.replaceAuthority(t, r.proxyCAFile, "proxied", says, r.proxies, r.laterProxies)
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// replaceAuthority puts the authority of after beside that of before, and then in its place.
func (r *rotation) replaceAuthority(t *testing.T, file, user string, wrap transport.WrapperFunc, before, after *signer) {
	t.Helper()
	old, next := r.clientOf(t, before, wrap), r.clientOf(t, after, wrap)
	expect := func(what string, c kubernetes.Interface, accepted bool) {
		t.Helper()
		eventually(t, what, func(ctx context.Context) error {
			got, err := whoAmI(ctx, c)
			switch {
			case err == nil && accepted && got.Username == user:
				return nil
			case !accepted && (apierrors.IsUnauthorized(err) || err == nil && got.Username != user):
				return nil
			}
			return fmt.Errorf("the user is %q (%v)", got.Username, err)
		})
	}
	expect("the old authority is known", old, true)
	expect("the new authority is not", next, false)
	replaceFile(t, file, append(before.pem(), after.pem()...))
	expect("the new authority is known", next, true)
	expect("the old one still is", old, true)
	replaceFile(t, file, after.pem())
	expect("the old authority is not known", old, false)
	expect("the new one is", next, true)
}

// The aggregator calls a server as a front proxy; none of its calls fails.
func (r *rotation) aggregator(t *testing.T) {
	t.Parallel()
	certPEM, keyPEM := r.servers.issue(t, "aggregated", "", x509.ExtKeyUsageServerAuth)
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		// Its connections end, so that each call has a handshake of its own.
		w.Header().Set("Connection", "close")
		if len(req.TLS.PeerCertificates) == 0 {
			http.Error(w, "no certificate", http.StatusUnauthorized)
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]string{"caller": req.TLS.PeerCertificates[0].Subject.CommonName})
	}))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequestClientCert}
	server.StartTLS()
	t.Cleanup(server.Close)
	admin := withToken(t, r.Catena, r.Config(cluster.Admin).BearerToken)
	_, port, _ := net.SplitHostPort(server.Listener.Addr().String())
	for path, object := range map[string]string{
		"/api/v1/namespaces/default/services": `{"metadata": {"name": "rotation"}, "spec": {"type": "ExternalName", "externalName": "localhost"}}`,
		"/apis/apiregistration.k8s.io/v1/apiservices": `{"metadata": {"name": "v1.rotation.test"}, "spec": {"group": "rotation.test", "version": "v1",
			"groupPriorityMinimum": 100, "versionPriority": 10, "insecureSkipTLSVerify": true,
			"service": {"name": "rotation", "namespace": "default", "port": ` + port + `}}}`,
	} {
		if err := admin.RESTClient().Post().AbsPath(path).Body([]byte(object)).Do(t.Context()).Error(); err != nil {
			t.Fatal(err)
		}
	}
	isCaller := func(want string) func(context.Context) error {
		return func(ctx context.Context) error {
			body, err := admin.RESTClient().Get().AbsPath("/apis/rotation.test/v1/things").DoRaw(ctx)
			if err == nil && !strings.Contains(string(body), want) {
				err = fmt.Errorf("the server says %q", body)
			}
			return err
		}
	}
	eventually(t, "the aggregator calls with its certificate", isCaller("aggregator-1"))
	certPEM, keyPEM = r.proxies.issue(t, "aggregator-2", "", x509.ExtKeyUsageClientAuth)
	replaceFile(t, r.aggregatorCert[1], keyPEM)
	replaceFile(t, r.aggregatorCert[0], certPEM)
	eventually(t, "the aggregator calls with its new certificate", func(ctx context.Context) error {
		err := isCaller("aggregator-2")(ctx)
		if err != nil && isCaller("aggregator-")(ctx) != nil {
			t.Errorf("a call failed: %v", err)
		}
		return err
	})
}

// clientOf has a certificate of the authority.
func (r *rotation) clientOf(t *testing.T, s *signer, wrap transport.WrapperFunc) kubernetes.Interface {
	t.Helper()
	config := rest.AnonymousClientConfig(r.fresh(cluster.Admin))
	config.WrapTransport = wrap
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
