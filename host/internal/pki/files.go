package pki

import (
	"crypto"
	"crypto/x509"
	"fmt"
	"io"
	"os"
	"path/filepath"

	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"

	"github.com/catena-dev/catena/host/internal/guard"
)

// Files are the paths of the certificates and keys of a directory.
type Files struct {
	CA, CAKey                                  string
	Serving, ServingKey                        string
	KubeletClient, KubeletClientKey            string
	FrontProxyCA, FrontProxyCAKey              string
	FrontProxyClient, FrontProxyClientKey      string
	ServiceAccountKey, ServiceAccountPublicKey string
}

// FilesIn returns the paths in a directory, whether or not the files exist yet.
func FilesIn(dir string) Files {
	in := func(name string) string { return filepath.Join(dir, name) }
	return Files{
		CA: in("ca.crt"), CAKey: in("ca.key"),
		Serving: in("apiserver.crt"), ServingKey: in("apiserver.key"),
		KubeletClient: in("apiserver-kubelet-client.crt"), KubeletClientKey: in("apiserver-kubelet-client.key"),
		FrontProxyCA: in("front-proxy-ca.crt"), FrontProxyCAKey: in("front-proxy-ca.key"),
		FrontProxyClient: in("front-proxy-client.crt"), FrontProxyClientKey: in("front-proxy-client.key"),
		ServiceAccountKey: in("sa.key"), ServiceAccountPublicKey: in("sa.pub"),
	}
}

func (f Files) all() []string {
	return []string{
		f.CA, f.CAKey, f.Serving, f.ServingKey, f.KubeletClient, f.KubeletClientKey,
		f.FrontProxyCA, f.FrontProxyCAKey, f.FrontProxyClient, f.FrontProxyClientKey,
		f.ServiceAccountKey, f.ServiceAccountPublicKey,
	}
}

// privateDir makes a directory with mode 0700, or removes the rights of other users to an existing
// one and to its files. Files of another user are refused.
func privateDir(dir string) error {
	_, err := guard.Dir(dir)
	for _, path := range FilesIn(dir).all() {
		if err == nil {
			err = guard.File(path)
		}
	}
	if err != nil {
		return fmt.Errorf("directory for certificates: %w", err)
	}
	return nil
}

// writeFile writes a file that only its owner can read.
func writeFile(path string, data []byte) error {
	return guard.WriteFile(path, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
}

func writeCert(path string, cert *x509.Certificate) error {
	data, err := certutil.EncodeCertificates(cert)
	if err != nil {
		return fmt.Errorf("encode %s: %w", path, err)
	}
	return writeFile(path, data)
}

func writeKey(path string, key crypto.Signer) error {
	data, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return fmt.Errorf("encode %s: %w", path, err)
	}
	return writeFile(path, data)
}

// loadPair reads a certificate, the first if there are several, and a key.
func loadPair(certFile, keyFile string) (*x509.Certificate, crypto.Signer, error) {
	cert, err := loadCert(certFile)
	if err != nil {
		return nil, nil, err
	}
	key, err := loadKey(keyFile)
	return cert, key, err
}

func loadCert(path string) (*x509.Certificate, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	certs, err := certutil.ParseCertsPEM(data)
	if err != nil {
		return nil, fmt.Errorf("%s: no certificate in PEM: %w", path, err)
	}
	return certs[0], nil
}

func loadKey(path string) (crypto.Signer, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	key, err := keyutil.ParsePrivateKeyPEM(data)
	if err != nil {
		return nil, fmt.Errorf("%s: no private key in PEM: %w", path, err)
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("%s: a key of type %T cannot sign", path, key)
	}
	return signer, nil
}

// sameKey reports whether the certificate is for the key.
func sameKey(cert *x509.Certificate, key crypto.Signer) bool {
	public, ok := cert.PublicKey.(interface{ Equal(crypto.PublicKey) bool })
	return ok && public.Equal(key.Public())
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
