package lockfile

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func put(t *testing.T, data []byte, elements ...string) string {
	t.Helper()
	path := filepath.Join(elements...)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func encodeKey(t *testing.T, key any) []byte {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
}

func TestVerify(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	_, other, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	key, err := ReadKey(put(t, encodeKey(t, public), dir, "key.pem"))
	if err != nil {
		t.Fatal(err)
	}
	program := []byte("a program")
	path, hash := put(t, program, dir, "program"), sha256.Sum256(program)
	digest := hex.EncodeToString(hash[:])
	for name, c := range map[string]struct {
		signature []byte
		want      string
	}{
		"raw":         {ed25519.Sign(private, program), ""},
		"base64":      {[]byte(base64.StdEncoding.EncodeToString(ed25519.Sign(private, program)) + "\n"), ""},
		"other file":  {ed25519.Sign(private, []byte("another program")), "is not one of this file by that key"},
		"other key":   {ed25519.Sign(other, program), "is not one of this file by that key"},
		"of a script": {ed25519.Sign(private, []byte(digest)), "is not one of this file by that key"},
		"cut":         {ed25519.Sign(private, program)[:60], "want the 64 bytes"},
		"short":       {[]byte("AAAA"), "wrong length"},
		"missing":     {nil, "is not signed"},
	} {
		signature := filepath.Join(dir, name)
		if c.signature != nil {
			put(t, c.signature, signature)
		}
		err := VerifyProgram(key, path, signature, digest)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path)) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
	if err := VerifyDigest(key, path, filepath.Join(dir, "of a script"), digest); err != nil {
		t.Error(err)
	}
	if err := VerifyDigest(key, path, filepath.Join(dir, "raw"), digest); err == nil {
		t.Error("the signature of a program is one of a script")
	}
	if err := VerifyProgram(key, path, filepath.Join(dir, "raw"), sum("a")); err == nil || !strings.Contains(err.Error(), "changed") {
		t.Errorf("another digest: %v", err)
	}
}

func TestReadKey(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p256, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	public, _, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	for want, data := range map[string][]byte{
		"want an Ed25519 key": encodeKey(t, &p256.PublicKey),
		"want one PEM block":  append(encodeKey(t, public), encodeKey(t, public)...),
		"asn1":                pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: []byte("x")}),
	} {
		path := put(t, data, dir, "key")
		if _, err := ReadKey(path); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
