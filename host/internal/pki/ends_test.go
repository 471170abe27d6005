package pki

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
)

// A line comes when a certificate ends soon, each day, and when there is another; of a bundle, the first that is valid counts.
func TestEnds(t *testing.T) {
	t.Parallel()
	dir, now := t.TempDir(), time.Now().Truncate(time.Second)
	file := filepath.Join(dir, "bundle.crt")
	bundle := func(ends ...time.Duration) {
		var text []byte
		for _, d := range ends {
			a, err := ensureAuthority(filepath.Join(dir, "ca.crt"), filepath.Join(dir, "ca.key"), "ca", func() time.Time { return now.Add(-validity) })
			if err != nil {
				t.Fatal(err)
			}
			a.now = func() time.Time { return now.Add(d - validity) }
			cert, err := a.sign(clientTemplate("x"), a.key.Public())
			if err != nil {
				t.Fatal(err)
			}
			text = append(text, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw})...)
		}
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const day = 24 * time.Hour
	var log bytes.Buffer
	var observed Certificate
	files := map[string]string{"client-ca-file": file, "etcd-cafile": filepath.Join(dir, "missing")}
	e := &Ends{File: func(flag string) string { return files[flag] },
		Observe: func(c Certificate) { observed = c }, Log: hclog.New(&hclog.LoggerOptions{Output: &log})}
	look := func(after time.Duration, end time.Duration, line bool) {
		t.Helper()
		log.Reset()
		e.look(now.Add(after))
		if !observed.End.Equal(now.Add(end)) || observed.Flag != "client-ca-file" || observed.File != file {
			t.Errorf("after %s it is %+v, want an end at %s", after, observed, now.Add(end))
		}
		if got := strings.Count(log.String(), file); (got > 0) != line || got > 1 {
			t.Errorf("after %s: %q", after, log.String())
		}
	}
	bundle(100*day, 40*day)
	look(0, 40*day, false)
	look(11*day, 40*day, false)
	look(12*day+time.Hour, 40*day, true)
	look(12*day+2*time.Hour, 40*day, false)
	look(13*day+time.Hour, 40*day, true)
	look(41*day, 100*day, false) // the other is valid
	look(101*day, 100*day, true)
	bundle(200 * day)
	look(102*day, 200*day, false)
	bundle(300 * day)
	if first, again := e.look(now), e.look(now); len(first) != 1 || first[0] != "client-ca-file" || again != nil {
		t.Errorf("renewed: %q, and then %q", first, again)
	}
	bundle(110 * day)
	look(102*day+time.Hour, 110*day, true)
}

// What is renewed in time never ends soon, however short its life is: kubelet renews at 70 to 90 % of it, cert-manager at two thirds.
func TestSoonIsAShareOfTheLifetime(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for _, c := range []struct{ lifetime, left, soon time.Duration }{
		{time.Hour, 6 * time.Minute, 4 * time.Minute},
		{7 * day, 17 * time.Hour, 13 * time.Hour},
		{90 * day, 9 * day, 7 * day},
		{validity, renewBefore - 12*time.Hour, 27 * day}, // those of Catena, which a host looks at every twelve hours
		{10 * validity, 29 * day, 27 * day},
	} {
		now := time.Now().Truncate(time.Second)
		file := filepath.Join(t.TempDir(), "a.crt")
		for left, soon := range map[time.Duration]bool{c.left: false, c.soon: true, -time.Second: true} {
			key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
			if err != nil {
				t.Fatal(err)
			}
			template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: now.Add(left - c.lifetime), NotAfter: now.Add(left)}
			der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
				t.Fatal(err)
			}
			got, err := readCertificate("tls-cert-file", file, now)
			if err != nil || got.Soon != soon || !got.End.Equal(now.Add(left)) {
				t.Errorf("%s of %s are left: %+v, %v", left, c.lifetime, got, err)
			}
		}
	}
}
