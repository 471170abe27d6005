// Package testing has the interface of the package of Kubernetes of this name, with which its integration tests start a kube-apiserver in their own
// process, and starts a program instead: the one that KUBE_APISERVER names. What can be set only in the process is skipped.
package testing

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storageversion"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/component-base/featuregate"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"
	"k8s.io/kubernetes/test/utils/ktesting"
)

const (
	startTimeout = time.Minute
	endTimeout   = time.Minute
	adminToken   = "integration-admin-token"
)

// TearDownFunc ends a server.
type TearDownFunc func()

// TestServerInstanceOptions are what a test wants of its server.
type TestServerInstanceOptions struct {
	SkipHealthzCheck       bool
	DisableInvariantChecks bool
	EnableCertAuth         bool
	StorageVersionWrapFunc func(storageversion.Manager) storageversion.Manager
	ProxyCA                *ProxyCA
	BinaryVersion          string
	RequestTimeout         time.Duration
}

// TestServer is a server that has been started.
type TestServer struct {
	ClientConfig      *restclient.Config
	ServerOpts        *options.ServerRunOptions
	TearDownFn        TearDownFunc
	TmpDir            string
	EtcdClient        *clientv3.Client
	EtcdStoragePrefix string
}

// Logger is a test.
type Logger interface {
	Helper()
	Errorf(format string, args ...interface{})
	Fatalf(format string, args ...interface{})
	Logf(format string, args ...interface{})
	Cleanup(func())
}

// ProxyCA is an authority of front proxies that several servers have.
type ProxyCA struct {
	ProxySigningCert *x509.Certificate
	ProxySigningKey  *rsa.PrivateKey
}

// NewDefaultTestServerOptions returns what most tests want.
func NewDefaultTestServerOptions() *TestServerInstanceOptions {
	return &TestServerInstanceOptions{EnableCertAuth: true}
}

// StartTestServerOrDie is StartTestServer for a test that needs the server.
func StartTestServerOrDie(t testing.TB, o *TestServerInstanceOptions, flags []string, storage *storagebackend.Config) *TestServer {
	t.Helper()
	server, err := StartTestServer(t, o, flags, storage)
	if err != nil {
		t.Fatalf("the server does not start: %v", err)
	}
	return &server
}

// StartTestServer starts the program with the flags on a port of its own, and returns when it is healthy. The caller calls TearDownFn.
func StartTestServer(t ktesting.TB, o *TestServerInstanceOptions, flags []string, storage *storagebackend.Config) (result TestServer, err error) {
	if o == nil {
		o = NewDefaultTestServerOptions()
	}
	if o.StorageVersionWrapFunc != nil || o.BinaryVersion != "" {
		t.Skip("the test changes the server in its process")
	}
	dir, err := os.MkdirTemp("", "kubernetes-kube-apiserver")
	if err != nil {
		return result, err
	}
	s := &server{dir: dir, given: joined(flags)}
	if err := s.prepare(o, storage); err != nil {
		return result, errors.Join(err, os.RemoveAll(dir))
	}
	if err := s.start(); err != nil {
		return result, errors.Join(err, os.RemoveAll(dir))
	}
	result.TmpDir, result.EtcdStoragePrefix = dir, storage.Prefix
	if result.EtcdClient, _, err = GetEtcdClients(storage.Transport); err != nil {
		return result, errors.Join(err, s.end(t))
	}
	if result.ServerOpts, err = s.options(storage); err != nil {
		return result, errors.Join(err, s.end(t))
	}
	if result.ClientConfig, err = s.await(o.SkipHealthzCheck); err != nil {
		return result, errors.Join(err, s.end(t))
	}
	client := result.EtcdClient
	result.TearDownFn = func() {
		if err := errors.Join(s.end(t), client.Close()); err != nil {
			t.Errorf("%v", err)
		}
	}
	return result, nil
}

// GetEtcdClients returns clients of the store.
func GetEtcdClients(c storagebackend.TransportConfig) (*clientv3.Client, clientv3.KV, error) {
	config := clientv3.Config{Endpoints: c.ServerList, DialTimeout: 20 * time.Second}
	if c.CertFile != "" || c.TrustedCAFile != "" {
		var err error
		config.TLS, err = transport.TLSInfo{CertFile: c.CertFile, KeyFile: c.KeyFile, TrustedCAFile: c.TrustedCAFile}.ClientConfig()
		if err != nil {
			return nil, nil, err
		}
	}
	client, err := clientv3.New(config)
	if err != nil {
		return nil, nil, err
	}
	return client, clientv3.NewKV(client), nil
}

// server is one process.
type server struct {
	dir         string
	given, args []string
	port        int
	cmd         *exec.Cmd
	ended       chan struct{}
	err         error // of the process, once it has ended
}

func (s *server) path(name string) string { return filepath.Join(s.dir, name) }

// joined returns flags with each value in the argument of its flag.
func joined(flags []string) (all []string) {
	for i, f := range flags {
		if i > 0 && strings.HasPrefix(flags[i-1], "--") && !strings.Contains(flags[i-1], "=") && !strings.HasPrefix(f, "--") {
			all[len(all)-1] += "=" + f
			continue
		}
		all = append(all, f)
	}
	return all
}

// has reports whether the test has given a flag, and its last value.
func (s *server) has(name string) (value string, ok bool) {
	for _, f := range s.given {
		if rest, found := strings.CutPrefix(f, "--"+name+"="); found {
			value, ok = rest, true
		}
	}
	return value, ok
}

// unless adds a flag that the test has not given.
func (s *server) unless(name, value string) {
	if _, ok := s.has(name); !ok {
		s.args = append(s.args, "--"+name+"="+value)
	}
}

func (s *server) prepare(o *TestServerInstanceOptions, storage *storagebackend.Config) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s.port = l.Addr().(*net.TCPAddr).Port
	if err := l.Close(); err != nil {
		return err
	}
	s.args = []string{
		"--bind-address=127.0.0.1", "--secure-port=" + strconv.Itoa(s.port), "--cert-dir=" + s.dir,
		"--etcd-servers=" + strings.Join(storage.Transport.ServerList, ","), "--etcd-prefix=" + storage.Prefix,
	}
	s.unless("service-cluster-ip-range", "10.0.0.0/16")
	if _, ok := s.has("advertise-address"); !ok {
		s.unless("endpoint-reconciler-type", "none")
	}
	if o.RequestTimeout > 0 {
		s.unless("request-timeout", o.RequestTimeout.String())
	}
	if err := s.addTokens(); err != nil {
		return err
	}
	if _, ok := s.has("service-account-signing-endpoint"); !ok {
		key, err := newKey()
		if err == nil {
			err = writeKey(s.path("service-account.key"), key)
		}
		if err != nil {
			return err
		}
		s.unless("service-account-issuer", "https://foo.bar.example.com")
		s.unless("service-account-signing-key-file", s.path("service-account.key"))
		s.unless("service-account-key-file", s.path("service-account.key"))
	}
	if o.EnableCertAuth {
		if err := s.addAuthorities(o.ProxyCA); err != nil {
			return err
		}
	}
	s.args = append(s.args, gates()...)
	for _, f := range s.given {
		if !strings.HasPrefix(f, "--token-auth-file=") {
			s.args = append(s.args, f)
		}
	}
	return nil
}

// addTokens adds the token of an administrator to those of the test.
func (s *server) addTokens() error {
	tokens := adminToken + `,system:apiserver,admin-uid,"system:masters"` + "\n"
	if file, ok := s.has("token-auth-file"); ok {
		theirs, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		tokens += string(theirs)
	}
	s.args = append(s.args, "--token-auth-file="+s.path("tokens.csv"))
	return os.WriteFile(s.path("tokens.csv"), []byte(tokens), 0o600)
}

// addAuthorities adds those of clients' certificates and of front proxies, and a certificate with which the server is one. The files
// have the names that tests look for.
func (s *server) addAuthorities(shared *ProxyCA) error {
	clientKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	clients, err := cert.NewSelfSignedCACert(cert.Config{CommonName: "client-ca"}, clientKey)
	if err != nil {
		return err
	}
	if shared == nil {
		key, err := rsa.GenerateKey(rand.Reader, 2048)
		if err != nil {
			return err
		}
		ca, err := cert.NewSelfSignedCACert(cert.Config{CommonName: "front-proxy-ca"}, key)
		if err != nil {
			return err
		}
		shared = &ProxyCA{ca, key}
	}
	proxyKey, err := newKey()
	if err != nil {
		return err
	}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: "misty"}, SerialNumber: big.NewInt(time.Now().UnixNano()),
		NotBefore: shared.ProxySigningCert.NotBefore, NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, shared.ProxySigningCert, proxyKey.Public(), shared.ProxySigningKey)
	if err != nil {
		return err
	}
	proxy, err := x509.ParseCertificate(der)
	if err != nil {
		return err
	}
	err = errors.Join(
		writeCertificate(s.path("client-ca.crt"), clients), writeCertificate(s.path("proxy-ca.crt"), shared.ProxySigningCert),
		writeCertificate(s.path("misty-crt.crt"), proxy), writeKey(s.path("misty-crt.key"), proxyKey))
	s.unless("client-ca-file", s.path("client-ca.crt"))
	s.unless("requestheader-client-ca-file", s.path("proxy-ca.crt"))
	s.unless("requestheader-allowed-names", "ash,misty,brock")
	s.unless("requestheader-username-headers", "X-Remote-User")
	s.unless("requestheader-uid-headers", "X-Remote-Uid")
	s.unless("requestheader-group-headers", "X-Remote-Group")
	s.unless("requestheader-extra-headers-prefix", "X-Remote-Extra-")
	s.unless("proxy-client-cert-file", s.path("misty-crt.crt"))
	s.unless("proxy-client-key-file", s.path("misty-crt.key"))
	return err
}

// gates are the feature gates that the test has set in its process.
func gates() []string {
	var set []string
	for name, spec := range utilfeature.DefaultMutableFeatureGate.GetAll() {
		if name != "AllAlpha" && name != "AllBeta" && !spec.LockToDefault && spec.PreRelease != featuregate.GA && utilfeature.DefaultFeatureGate.Enabled(name) != spec.Default {
			set = append(set, fmt.Sprintf("%s=%t", name, !spec.Default))
		}
	}
	if len(set) == 0 {
		return nil
	}
	slices.Sort(set)
	return []string{"--feature-gates=" + strings.Join(set, ",")}
}

func (s *server) start() error {
	log, err := os.Create(s.path("log"))
	if err != nil {
		return err
	}
	defer log.Close()
	s.cmd = exec.Command(os.Getenv("KUBE_APISERVER"), s.args...)
	s.cmd.Stdout, s.cmd.Stderr = log, log
	if err := s.cmd.Start(); err != nil {
		return fmt.Errorf("KUBE_APISERVER: %w", err)
	}
	s.ended = make(chan struct{})
	go func() {
		defer close(s.ended)
		s.err = s.cmd.Wait()
	}()
	return nil
}

// await returns the configuration of an administrator when the server serves.
func (s *server) await(unhealthy bool) (*restclient.Config, error) {
	deadline, last := time.Now().Add(startTimeout), error(nil)
	for time.Now().Before(deadline) {
		select {
		case <-s.ended:
			return nil, fmt.Errorf("the server has ended: %v", s.err)
		case <-time.After(100 * time.Millisecond):
		}
		config := &restclient.Config{Host: "https://127.0.0.1:" + strconv.Itoa(s.port), BearerToken: adminToken, QPS: 1000, Burst: 10000}
		var err error
		if config.CAData, err = s.certificate(); err != nil {
			last = err
			continue
		}
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			return nil, err
		}
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		if !unhealthy {
			last = client.CoreV1().RESTClient().Get().AbsPath("/healthz").Do(ctx).Error()
		}
		if last == nil {
			_, last = client.CoreV1().Namespaces().Get(ctx, "default", metav1.GetOptions{})
		}
		cancel()
		if last == nil {
			return config, nil
		}
	}
	return nil, fmt.Errorf("it does not become healthy: %w", last)
}

// certificate is what the server serves with, by which clients know it.
func (s *server) certificate() ([]byte, error) {
	if file, ok := s.has("tls-cert-file"); ok {
		return os.ReadFile(file)
	}
	return os.ReadFile(s.path("apiserver.crt"))
}

// options are those that the flags set.
func (s *server) options(storage *storagebackend.Config) (*options.ServerRunOptions, error) {
	o := options.NewServerRunOptions()
	set := pflag.NewFlagSet("kube-apiserver", pflag.ContinueOnError)
	for _, f := range o.Flags().FlagSets {
		set.AddFlagSet(f)
	}
	if err := set.Parse(s.args); err != nil {
		return nil, err
	}
	o.Etcd.StorageConfig = *storage
	o.SecureServing.ServerCert.CertDirectory = s.dir
	o.SecureServing.ServerCert.CertKey.CertFile = s.path("apiserver.crt")
	o.SecureServing.ServerCert.CertKey.KeyFile = s.path("apiserver.key")
	return o, nil
}

// end ends the server in order, and shows its log if the test has failed.
func (s *server) end(t ktesting.TB) error {
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	var err error
	select {
	case <-s.ended:
		if s.err != nil {
			err = fmt.Errorf("the server ends with %w", s.err)
		}
	case <-time.After(endTimeout):
		err = errors.New("the server does not end")
		_ = s.cmd.Process.Kill()
		<-s.ended
	}
	if log, _ := os.ReadFile(s.path("log")); t.Failed() || err != nil {
		lines := bytes.Split(log, []byte("\n"))
		t.Logf("the last lines of the server:\n%s", bytes.Join(lines[max(0, len(lines)-60):], []byte("\n")))
	}
	return errors.Join(err, os.RemoveAll(s.dir))
}

func newKey() (*ecdsa.PrivateKey, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) }

func writeKey(path string, key crypto.PrivateKey) error {
	pem, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return err
	}
	return keyutil.WriteKey(path, pem)
}

func writeCertificate(path string, c *x509.Certificate) error {
	pem, err := cert.EncodeCertificates(c)
	if err != nil {
		return err
	}
	return os.WriteFile(path, pem, 0o644)
}
