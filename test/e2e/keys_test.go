package e2e

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"net"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"

	"github.com/catena-dev/catena/test/internal/cluster"
)

// newKey makes a private key; the second result is its PEM form.
func newKey(t *testing.T) (*ecdsa.PrivateKey, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	text, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		t.Fatal(err)
	}
	return key, text
}

// newCertificateRequest makes a key and the request for a certificate for it, as a
// CertificateSigningRequest object has it.
func newCertificateRequest(t *testing.T, user, group string) (keyPEM []byte, request string) {
	t.Helper()
	key, keyPEM := newKey(t)
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: user, Organization: []string{group}},
	}, key)
	if err != nil {
		t.Fatal(err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
	return keyPEM, base64.StdEncoding.EncodeToString(text)
}

// newServingCertificate makes a certificate authority and a server's certificate for a
// name and for this machine; the result is the authority and the paths of the server's files.
func newServingCertificate(t *testing.T, name string) (ca []byte, certFile, keyFile string) {
	t.Helper()
	caKey, _ := newKey(t)
	authority, err := cert.NewSelfSignedCACert(cert.Config{CommonName: "test CA"}, caKey)
	if err != nil {
		t.Fatal(err)
	}
	key, keyPEM := newKey(t)
	template := &x509.Certificate{
		SerialNumber: authority.SerialNumber,
		Subject:      pkix.Name{CommonName: name},
		DNSNames:     []string{name},
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore:    authority.NotBefore,
		NotAfter:     authority.NotAfter,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, authority, key.Public(), crypto.Signer(caKey))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	certFile, keyFile = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	for path, text := range map[string][]byte{
		certFile: pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: der}),
		keyFile:  keyPEM,
	} {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: authority.Raw}), certFile, keyFile
}

func freePort(t *testing.T) string {
	t.Helper()
	port, err := cluster.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	return port
}
