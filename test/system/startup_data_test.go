package system

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A data directory that is too deep for the paths of sockets works all the same.
func TestDeepDataDirectory(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for range 5 {
		s.data = filepath.Join(s.data, strings.Repeat("deep", 10))
	}
	s.works(t, s.args()...)

	// A runtime directory that the operator has chosen is not replaced by another.
	s.refused(t, runCatena(t, s.args("--set", "runtimeDir="+s.data)...), s.data, "runtimeDir")
}

func TestLockedDataFolder(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	first := s.start(t, s.args()...)
	first.awaitReady(t)
	r := runCatena(t, s.args()...)
	if r.code <= 0 || !strings.Contains(r.stderr, "data directory "+s.data+" is in use by another catena host, process ") {
		t.Errorf("second host: exit code %d\n%s", r.code, r.stderr)
	}
	if len(processesOf(s.data)) != 2 {
		t.Errorf("processes of the data directory: %v; want the first host and its stage", processesOf(s.data))
	}
	if len(socketsBelow(s.data)) == 0 {
		t.Error("the second host has removed the sockets of the first")
	}
	first.stop(t)
	s.nothingLeft(t)
	s.works(t, s.args()...)
}

// The certificates are looked at before clients have to find out.
func TestWrongCertificate(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	now := time.Now()
	for name, tc := range map[string]struct {
		cert, key string
		want      []string
	}{
		"expired":     pairCase(t, now.Add(-time.Hour), true, "expired"),
		"other's key": pairCase(t, now.Add(time.Hour), false, "key"),
		"no file":     {"/no/such/cert", "/no/such/key", []string{"/no/such/cert"}},
		"no key":      {write(t, "a.crt", "x"), "", []string{"tls-private-key-file"}},
		"no PEM":      {write(t, "a.crt", "x"), write(t, "a.key", "x"), []string{"PEM"}},
	} {
		t.Run(name, func(t *testing.T) {
			args := s.args("--set", "apiserver.tls-cert-file="+tc.cert)
			if tc.key != "" {
				args = append(args, "--set", "apiserver.tls-private-key-file="+tc.key)
			}
			s.refused(t, runCatena(t, args...), append(tc.want, "apiserver.tls-cert-file")...)
		})
	}
	s.works(t, s.args()...)
}

type certCase = struct {
	cert, key string
	want      []string
}

// pairCase writes a certificate with a key, its own or not.
func pairCase(t *testing.T, until time.Time, own bool, want string) certCase {
	t.Helper()
	key, other := newKey(t), newKey(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "server"},
		NotBefore: until.Add(-24 * time.Hour), NotAfter: until, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	if !own {
		key = other
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	c := certCase{
		cert: write(t, "tls.crt", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))),
		key:  write(t, "tls.key", string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}))),
	}
	c.want = []string{c.cert, want}
	return c
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// The certificates and keys that Catena has made are the operator's to break, too.
func TestDamagedKeys(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.works(t, s.args()...)
	for _, name := range []string{"ca.crt", "ca.key", "sa.key"} {
		path := filepath.Join(s.data, "pki", name)
		good := read(path)
		if err := os.WriteFile(path, bytes.Repeat([]byte("x"), 100), 0o600); err != nil {
			t.Fatal(err)
		}
		s.refused(t, runCatena(t, s.args()...), path)
		if err := os.WriteFile(path, good, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s.works(t, s.args()...)
}

func TestUnreachableEtcd(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	endpoint := "http://127.0.0.1:" + freePort(t)
	s.refused(t, runCatena(t, s.args("--set", "store.endpoints="+endpoint)...), endpoint, "store.endpoints")
	s.refused(t, runCatena(t, s.args("--set", "store.endpoints=https://127.0.0.1:1", "--set", "store.caFile=/no/such/ca")...), "/no/such/ca", "store.caFile")
	s.works(t, s.args()...)
}
