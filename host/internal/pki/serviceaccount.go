package pki

import (
	"bytes"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"sync"
)

// rsaBits is the size of the key that signs tokens. It is an RSA key, because
// every OpenID Connect relying party can verify its signatures.
const rsaBits = 2048

// newServiceAccountKey begins to make a key, unless the file has one: that takes longer than all other keys and
// certificates together. It returns what waits for it.
func newServiceAccountKey(file string) func() (*rsa.PrivateKey, error) {
	if exists(file) {
		return nil
	}
	key := sync.OnceValues(func() (*rsa.PrivateKey, error) { return rsa.GenerateKey(rand.Reader, rsaBits) })
	go func() { _, _ = key() }()
	return key
}

// ensureServiceAccountKeys makes the pair of keys for tokens, the private one with newKey unless that is nil. The public key is
// made from the private one if it is missing; a public file with other keys is
// left alone, since it may hold keys of earlier tokens, provided that the key is
// among them.
func ensureServiceAccountKeys(keyFile, publicFile string, newKey func() (*rsa.PrivateKey, error)) error {
	if newKey != nil {
		if exists(publicFile) {
			return fmt.Errorf("%s is missing, which signed the tokens that %s verifies: restore it from a backup, or delete %s too, and both are made anew", keyFile, publicFile, publicFile)
		}
		key, err := newKey()
		if err != nil {
			return err
		}
		if err := writeKey(keyFile, key); err != nil {
			return err
		}
	}
	key, err := loadKey(keyFile)
	if err != nil {
		return fmt.Errorf("service account key: %w", err)
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return fmt.Errorf("public key of %s: %w", keyFile, err)
	}
	if !exists(publicFile) {
		return writeFile(publicFile, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
	}
	return checkPublicKey(keyFile, publicFile, key.Public(), der)
}

func checkPublicKey(keyFile, publicFile string, public crypto.PublicKey, der []byte) error {
	rest, err := os.ReadFile(publicFile)
	if err != nil {
		return err
	}
	for {
		var block *pem.Block
		block, rest = pem.Decode(rest)
		if block == nil {
			return fmt.Errorf("%s does not hold the public key of %s, so no token would be accepted: delete it, and it is made anew", publicFile, keyFile)
		}
		if bytes.Equal(block.Bytes, der) {
			return nil
		}
		if key, ok := public.(*rsa.PublicKey); ok && bytes.Equal(block.Bytes, x509.MarshalPKCS1PublicKey(key)) {
			return nil
		}
	}
}
