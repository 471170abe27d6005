package pki

import (
	"bytes"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
)

// A line comes when a certificate ends within 30 days, each day, and when there is another; of a bundle, the first that is valid counts.
func TestEnds(t *testing.T) {
	t.Parallel()
	dir, now := t.TempDir(), time.Now().Truncate(time.Second)
	file := filepath.Join(dir, "bundle.crt")
	bundle := func(ends ...time.Duration) {
		var text []byte
		for _, d := range ends {
			a, err := ensureAuthority(filepath.Join(dir, "ca.crt"), filepath.Join(dir, "ca.key"), "ca", func() time.Time { return now })
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
	var observed time.Time
	files := map[string]string{"client-ca-file": file, "etcd-cafile": filepath.Join(dir, "missing")}
	e := &Ends{File: func(flag string) string { return files[flag] },
		Observe: func(_, _ string, end time.Time) { observed = end }, Log: hclog.New(&hclog.LoggerOptions{Output: &log})}
	look := func(after time.Duration, end time.Duration, line bool) {
		t.Helper()
		log.Reset()
		e.look(now.Add(after))
		if !observed.Equal(now.Add(end)) {
			t.Errorf("after %s the end is %s, want %s", after, observed, now.Add(end))
		}
		if got := strings.Count(log.String(), file); (got > 0) != line || got > 1 {
			t.Errorf("after %s: %q", after, log.String())
		}
	}
	bundle(100*day, 40*day)
	look(0, 40*day, false)
	look(11*day, 40*day, true)
	look(11*day+time.Hour, 40*day, false)
	look(12*day, 40*day, true)
	look(41*day, 100*day, false) // the other is valid
	look(101*day, 100*day, true)
	bundle(200 * day)
	look(102*day, 200*day, false)
	bundle(110 * day)
	look(102*day+time.Hour, 110*day, true)
}
