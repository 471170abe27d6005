package store

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"maps"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/embed"
)

func TestExternal(t *testing.T) {
	t.Parallel()
	ca := newCA(t, "ca")
	certFile, keyFile := ca.issue(t, "etcd")
	endpoint := startTLSEtcd(t, ca.file, certFile, keyFile)
	o := Options{Dir: newDir(t), Endpoints: []string{endpoint}, CAFile: ca.file, CertFile: certFile, KeyFile: keyFile}

	s, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"etcd-servers": endpoint, "etcd-cafile": ca.file, "etcd-certfile": certFile, "etcd-keyfile": keyFile,
	}
	if got := o.Flags(); !maps.Equal(got, want) {
		t.Errorf("Flags are %v, want %v", got, want)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}

	otherUser := newCA(t, "otherUser")
	strangerCert, strangerKey := otherUser.issue(t, "client")
	for name, tc := range map[string]struct {
		change func(*Options)
		want   string
	}{
		"unknown authority": {func(o *Options) { o.CAFile = otherUser.file }, "certificate signed by unknown authority"},
		"no client cert":    {func(o *Options) { o.CertFile, o.KeyFile = "", "" }, "certificate required"},
		"other client cert": {func(o *Options) { o.CertFile, o.KeyFile = strangerCert, strangerKey }, "unknown certificate authority"},
		"plain":             {func(o *Options) { o.Endpoints = []string{"http" + strings.TrimPrefix(endpoint, "https")} }, "does not respond"},
		"refused":           {func(o *Options) { o.Endpoints = []string{"https://" + deafAddress(t)} }, "connection refused"},
	} {
		t.Run(name, func(t *testing.T) { // not parallel: the server ends with its test
			o := o
			o.Dir = newDir(t)
			tc.change(&o)
			timeout := time.Minute // an error of TLS ends the wait
			if name == "plain" || name == "refused" {
				timeout = 2*time.Second + retryInterval/2 // in the middle between two tries
			}
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			defer cancel()
			_, err := Open(ctx, o)
			if err == nil {
				t.Fatal("Open succeeded")
			}
			for _, want := range []string{"store.endpoints", o.Endpoints[0], tc.want} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not contain %q", err, want)
				}
			}
		})
	}
}

// One endpoint that responds is enough, as for kube-apiserver.
func TestExternalOneOfTwo(t *testing.T) {
	t.Parallel()
	ca := newCA(t, "ca")
	certFile, keyFile := ca.issue(t, "etcd")
	endpoint := startTLSEtcd(t, ca.file, certFile, keyFile)
	s, err := Open(t.Context(), Options{
		Dir: newDir(t), Endpoints: []string{"https://" + deafAddress(t), endpoint},
		CAFile: ca.file, CertFile: certFile, KeyFile: keyFile,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestExternalBadOptions(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		options Options
		want    []string
	}{
		"scheme":  {Options{Endpoints: []string{"10.0.0.1:2379"}}, []string{"store.endpoints", `"10.0.0.1:2379"`}},
		"port":    {Options{Endpoints: []string{"https://10.0.0.1"}}, []string{"store.endpoints", "no port"}},
		"several": {Options{Endpoints: []string{"one", "two"}}, []string{`"one"`, `"two"`}},
		"files":   {Options{Endpoints: []string{"https://10.0.0.1:1"}, CAFile: "/nowhere/ca.crt"}, []string{"/nowhere/ca.crt"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tc.options.Dir = newDir(t)
			_, err := Open(t.Context(), tc.options)
			if err == nil {
				t.Fatal("Open succeeded")
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not contain %q", err, want)
				}
			}
		})
	}
}

// deafAddress is an address on which no process listens, or can before the test ends: a
// socket that does not listen has it.
func deafAddress(t *testing.T) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	syscall.CloseOnExec(fd)
	t.Cleanup(func() { syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(name.(*syscall.SockaddrInet4).Port))
}

// freeAddress is an address on which no process listens just now.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// startTLSEtcd starts a server that wants client certificates and returns its URL.
func startTLSEtcd(t *testing.T, caFile, certFile, keyFile string) string {
	t.Helper()
	for attempt := 1; ; attempt++ {
		endpoint, err := tryTLSEtcd(t, caFile, certFile, keyFile)
		if err == nil {
			return endpoint
		}
		if !errors.Is(err, syscall.EADDRINUSE) || attempt == 5 { // another process was faster
			t.Fatal(err)
		}
	}
}

func tryTLSEtcd(t *testing.T, caFile, certFile, keyFile string) (string, error) {
	t.Helper()
	endpoint := url.URL{Scheme: "https", Host: freeAddress(t)}
	cfg := embed.NewConfig()
	cfg.Dir = newDir(t)
	cfg.ListenPeerUrls = nil
	cfg.ListenClientUrls = []url.URL{endpoint}
	cfg.AdvertiseClientUrls = []url.URL{endpoint}
	cfg.ClientTLSInfo = transport.TLSInfo{CertFile: certFile, KeyFile: keyFile, TrustedCAFile: caFile, ClientCertAuth: true}
	cfg.TickMs, cfg.ElectionMs = 10, 100
	cfg.UnsafeNoFsync = true
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(newZap(hclog.NewNullLogger(), func() bool { return false }, func(err error) { t.Error(err) }))
	etcd, err := embed.StartEtcd(cfg)
	if err != nil {
		return "", err
	}
	t.Cleanup(etcd.Close)
	<-etcd.Server.ReadyNotify()
	return endpoint.String(), nil
}

type testCA struct {
	dir, file string
	cert      *x509.Certificate
	key       *ecdsa.PrivateKey
}

func newCA(t *testing.T, name string) *testCA {
	t.Helper()
	ca := &testCA{dir: newDir(t), key: newKey(t)}
	ca.cert = template(name)
	ca.cert.IsCA, ca.cert.BasicConstraintsValid = true, true
	ca.cert.KeyUsage = x509.KeyUsageCertSign
	ca.file = ca.write(t, name, ca.cert, ca.key)
	return ca
}

// issue returns the files of a certificate for 127.0.0.1 and its key.
func (ca *testCA) issue(t *testing.T, name string) (certFile, keyFile string) {
	t.Helper()
	key := newKey(t)
	cert := template(name)
	cert.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	cert.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	certFile = ca.write(t, name, cert, key)
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return certFile, writePEM(t, filepath.Join(ca.dir, name+".key"), "EC PRIVATE KEY", der)
}

func (ca *testCA) write(t *testing.T, name string, cert *x509.Certificate, key *ecdsa.PrivateKey) string {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, cert, ca.cert, key.Public(), ca.key)
	if err != nil {
		t.Fatal(err)
	}
	return writePEM(t, filepath.Join(ca.dir, name+".crt"), "CERTIFICATE", der)
}

func template(name string) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()),
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(time.Hour),
	}
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func writePEM(t *testing.T, path, kind string, der []byte) string {
	t.Helper()
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
