package cluster

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// authority is a certificate authority whose certificate is in a file.
type authority struct {
	file string
	cert *x509.Certificate
	key  crypto.Signer
}

func (s *Server) newAuthority(name string) (*authority, error) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, err
	}
	ca, err := cert.NewSelfSignedCACert(cert.Config{CommonName: name}, key)
	if err != nil {
		return nil, err
	}
	a := &authority{file: filepath.Join(s.Dir, name+".crt"), cert: ca, key: key}
	return a, writePEM(a.file, cert.CertificateBlockType, ca.Raw)
}

// client issues a client certificate and returns the files of it and its key.
func (a *authority) client(s *Server, name string) (certFile, keyFile string, err error) {
	return a.issue(s, name, x509.ExtKeyUsageClientAuth)
}

// server issues a certificate for a server at this machine, and returns the files of it and its key.
func (a *authority) server(s *Server, name string) (certFile, keyFile string, err error) {
	return a.issue(s, name, x509.ExtKeyUsageServerAuth, "kubernetes.default.svc", "localhost")
}

func (a *authority) issue(s *Server, name string, usage x509.ExtKeyUsage, names ...string) (certFile, keyFile string, err error) {
	keyFile, key, err := s.newKey(name + ".key")
	if err != nil {
		return "", "", err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()),
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    a.cert.NotBefore,
		NotAfter:     a.cert.NotAfter,
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{usage},
		DNSNames:     names,
	}
	if len(names) > 0 {
		template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return "", "", err
	}
	certFile = filepath.Join(s.Dir, name+".crt")
	return certFile, keyFile, writePEM(certFile, cert.CertificateBlockType, der)
}

// newKey writes a private key of the kind that Catena makes.
func (s *Server) newKey(name string) (string, crypto.Signer, error) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return "", nil, err
	}
	path := filepath.Join(s.Dir, name)
	return path, key, writePEM(path, keyutil.RSAPrivateKeyBlockType, x509.MarshalPKCS1PrivateKey(key))
}

func writePEM(path, kind string, der []byte) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}
