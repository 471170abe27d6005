package e2e

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/cert"
)

// signer is a certificate authority.
type signer struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newSigner(t *testing.T, name string) *signer {
	t.Helper()
	key, _ := newKey(t)
	ca, err := cert.NewSelfSignedCACert(cert.Config{CommonName: name}, key)
	if err != nil {
		t.Fatal(err)
	}
	return &signer{ca, key}
}

func (s *signer) pem() []byte { return certificatePEM(s.cert.Raw) }

func certificatePEM(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: der})
}

// issue makes a certificate and its key. That of a server is for this machine, and has
// the authority behind it.
func (s *signer) issue(t *testing.T, name, group string, usage x509.ExtKeyUsage) (certPEM, keyPEM []byte) {
	t.Helper()
	key, keyPEM := newKey(t)
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<60))
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name, Organization: []string{group}},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotBefore: s.cert.NotBefore, NotAfter: s.cert.NotAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{usage},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, s.cert, key.Public(), s.key)
	if err != nil {
		t.Fatal(err)
	}
	return append(certificatePEM(der), s.pem()...), keyPEM
}

// replaceFile puts a file in the place of another at one point in time.
func replaceFile(t *testing.T, path string, text []byte) {
	t.Helper()
	if err := errors.Join(os.WriteFile(path+".new", text, 0o600), os.Rename(path+".new", path)); err != nil {
		t.Fatal(err)
	}
}

// keysOf is a configuration of encryption with these keys, the first of which is used.
func keysOf(names ...string) string {
	var keys []string
	for _, name := range names {
		secret := base64.StdEncoding.EncodeToString([]byte(strings.Repeat(name, 16)[:16]))
		keys = append(keys, fmt.Sprintf("{name: %s, secret: %s}", name, secret))
	}
	return "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\n" +
		"resources: [{resources: [secrets], providers: [{aesgcm: {keys: [" + strings.Join(keys, ", ") + "]}}]}]\n"
}

func secret(name string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, StringData: map[string]string{"word": "plaintext-word"}}
}
