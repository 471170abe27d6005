package system

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// signAnew gives an authority another end, with the same name and key.
func signAnew(t *testing.T, certFile, keyFile string, end time.Time) {
	t.Helper()
	certs, err := certutil.CertsFromFile(certFile)
	if err != nil {
		t.Fatal(err)
	}
	key, err := keyutil.PrivateKeyFromFile(keyFile)
	if err != nil {
		t.Fatal(err)
	}
	template := *certs[0]
	template.NotAfter, template.SerialNumber = end, nil
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, certs[0].PublicKey, key.(*ecdsa.PrivateKey))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}

// An authority that ends within 30 days is named in one line of the log, and its end is in the metrics. Signed anew with its own key, it keeps
// what it has signed, and the cluster is the same.
func TestAuthorityEnds(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	kubeconfig := filepath.Join(s.data, "admin.kubeconfig")
	var status run
	run := func() (lines []string, ends map[string]time.Time) {
		h := s.start(t, s.args()...)
		h.awaitReady(t)
		config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
		if err != nil {
			t.Fatal(err)
		}
		const metric = `(?m)^catena_certificate_expiration_timestamp_seconds\{flag="([^"]+)"\} (\S+)$`
		ends = map[string]time.Time{}
		for _, m := range regexp.MustCompile(metric).FindAllStringSubmatch(do(t, config, http.MethodGet, "/metrics", "").body, -1) {
			seconds, err := strconv.ParseFloat(m[2], 64)
			if err != nil {
				t.Fatal(err)
			}
			ends[m[1]] = time.Unix(int64(seconds), 0)
		}
		status = runCatena(t, "status", "--data-dir", s.data)
		h.stop(t)
		text, err := os.ReadFile(h.Log)
		if err != nil {
			t.Fatal(err)
		}
		return regexp.MustCompile(`(?m)^.*\[(?:WARN|ERROR)\].*$`).FindAllString(string(text), -1), ends
	}
	lines, ends := run()
	if len(lines) > 0 || time.Until(ends["requestheader-client-ca-file"]) < 9*365*24*time.Hour {
		t.Fatalf("at first: %q, %v", lines, ends)
	}
	before, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}

	ca, key := filepath.Join(s.data, "pki", "front-proxy-ca.crt"), filepath.Join(s.data, "pki", "front-proxy-ca.key")
	soon := time.Now().Add(20 * 24 * time.Hour).Truncate(time.Second)
	signAnew(t, ca, key, soon)
	lines, ends = run()
	if want := regexp.MustCompile(`certificates end soon.*front-proxy-ca\.crt ` + soon.UTC().Format(time.RFC3339) + ` \(requestheader-client-ca-file\)`); len(lines) != 1 || !want.MatchString(lines[0]) {
		t.Errorf("the log has %q", lines)
	}
	if want := "the certificate " + ca + " (requestheader-client-ca-file) ends on " + soon.UTC().Format(time.DateOnly); status.code != 1 || !strings.HasPrefix(status.stdout, want) {
		t.Errorf("the status is %d\n%s", status.code, status.stdout)
	}
	if got := ends["requestheader-client-ca-file"]; !got.Equal(soon) {
		t.Errorf("the metric says that it ends at %s, it is %s", got, soon)
	}

	for _, name := range []string{"ca", "front-proxy-ca"} {
		file := filepath.Join(s.data, "pki", name)
		signAnew(t, file+".crt", file+".key", time.Now().Add(10*365*24*time.Hour))
	}
	h := s.start(t, s.args()...)
	h.awaitReady(t)
	after, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	before.Host = after.Host // the port is another
	if got := do(t, before, http.MethodGet, "/readyz", ""); got.code != http.StatusOK {
		t.Errorf("with the kubeconfig of before: %d %s", got.code, got.body)
	}
	h.stop(t)
	text, err := os.ReadFile(h.Log)
	if err != nil {
		t.Fatal(err)
	}
	if lines := regexp.MustCompile(`(?m)^.*\[(?:WARN|ERROR)\].*$`).FindAllString(string(text), -1); len(lines) > 0 {
		t.Errorf("signed anew: %q", lines)
	}
}
