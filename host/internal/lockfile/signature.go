package lockfile

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
)

// ReadKey reads an Ed25519 public key from a PEM file, as openssl pkey -pubout writes it.
func ReadKey(path string) (ed25519.PublicKey, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	block, rest := pem.Decode(data)
	if block == nil || block.Type != "PUBLIC KEY" || len(bytes.TrimSpace(rest)) > 0 {
		return nil, fmt.Errorf("%s: want one PEM block PUBLIC KEY and nothing else", path)
	}
	parsed, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	key, ok := parsed.(ed25519.PublicKey)
	if !ok {
		return nil, fmt.Errorf("%s: want an Ed25519 key, have a %T", path, parsed)
	}
	return key, nil
}

// VerifyProgram checks the signature of a program: of the bytes of its file, which must have the
// digest. The signature is in its own file, as 64 bytes or their base64.
func VerifyProgram(key ed25519.PublicKey, path, signature, digest string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if sum := sha256.Sum256(data); hex.EncodeToString(sum[:]) != digest {
		return fmt.Errorf("%s changed while its signature was checked", path)
	}
	return verify(key, data, path, signature)
}

// VerifyDigest checks the signature of a script: of the hexadecimal digits of the digest, and
// nothing else.
func VerifyDigest(key ed25519.PublicKey, path, signature, digest string) error {
	return verify(key, []byte(digest), path, signature)
}

func verify(key ed25519.PublicKey, message []byte, path, signature string) error {
	raw, err := readSignature(signature)
	if err != nil {
		return fmt.Errorf("%s is not signed: %w", path, err)
	}
	if !ed25519.Verify(key, message, raw) {
		return fmt.Errorf("%s: the signature %s is not one of this file by that key", path, signature)
	}
	return nil
}

func readSignature(path string) ([]byte, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if len(data) == ed25519.SignatureSize {
		return data, nil
	}
	raw, err := base64.StdEncoding.DecodeString(string(bytes.TrimSpace(data)))
	if err == nil && len(raw) != ed25519.SignatureSize {
		err = errors.New("wrong length")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: want the 64 bytes of an Ed25519 signature, or their base64: %w", path, err)
	}
	return raw, nil
}
