package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"time"

	certutil "k8s.io/client-go/util/cert"
)

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  crypto.Signer
	file string
	now  func() time.Time
}

// ensureAuthority loads an authority, or makes it the first time.
func ensureAuthority(certFile, keyFile, name string, now func() time.Time) (*authority, error) {
	a, err := loadAuthority(certFile, keyFile, now)
	if !errors.Is(err, fs.ErrNotExist) {
		return a, err
	}
	switch {
	case exists(certFile):
		return nil, fmt.Errorf("%s is missing, the key of %s: restore it from a backup; %s", keyFile, certFile,
			startOver(certFile, keyFile))
	case !exists(keyFile):
		if err := newKey(keyFile); err != nil {
			return nil, err
		}
	}
	// There is a key without a certificate if a start was interrupted between them.
	if err := newAuthority(certFile, keyFile, name, now); err != nil {
		return nil, err
	}
	return loadAuthority(certFile, keyFile, now)
}

func newKey(path string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	return writeKey(path, key)
}

func newAuthority(certFile, keyFile, name string, now func() time.Time) error {
	key, err := loadKey(keyFile)
	if err != nil {
		return err
	}
	cert, err := certutil.NewSelfSignedCACert(certutil.Config{
		CommonName: name,
		// Clocks of clients may be a little slow.
		NotBefore: now().Add(-time.Hour),
	}, key)
	if err != nil {
		return fmt.Errorf("make %s: %w", certFile, err)
	}
	return writeCert(certFile, cert)
}

// loadAuthority fails with fs.ErrNotExist if one of the files is missing.
func loadAuthority(certFile, keyFile string, now func() time.Time) (*authority, error) {
	cert, key, err := loadPair(certFile, keyFile)
	if err != nil {
		return nil, fmt.Errorf("certificate authority: %w", err)
	}
	a := &authority{cert: cert, key: key, file: certFile, now: now}
	switch {
	case !cert.IsCA:
		return nil, fmt.Errorf("%s is no certificate authority; %s", certFile, startOver(certFile, keyFile))
	case !sameKey(cert, key):
		return nil, fmt.Errorf("%s is not the key of %s: restore the pair from a backup; %s", keyFile, certFile,
			startOver(certFile, keyFile))
	}
	if err := checkValidity(certFile, cert, now()); err != nil {
		return nil, fmt.Errorf("%w: sign it anew with its own key, which keeps what it has signed, as docs/operations.md says; or, %s", err, startOver(certFile, keyFile))
	}
	return a, nil
}

// startOver is the advice if an authority cannot be used any more.
func startOver(certFile, keyFile string) string {
	return fmt.Sprintf("to start over with a new authority, which makes every certificate and kubeconfig of the old one useless, move %s and %s away together with what they signed", certFile, keyFile)
}
