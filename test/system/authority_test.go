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

// tenYears are the lifetime of an authority.
const tenYears = 10 * 365 * 24 * time.Hour

// signAnew gives an authority another end, with the same name, key and lifetime.
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
	template.NotBefore, template.NotAfter, template.SerialNumber = end.Add(-tenYears), end, nil
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, certs[0].PublicKey, key.(*ecdsa.PrivateKey))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Authorities that end within four weeks are named in one line of the log, and their ends are in the metrics, with all else that is there.
// Signed anew with their own keys, they keep what they have signed, and the cluster is the same.
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
		do(t, config, http.MethodGet, "/metrics", "")
		got := do(t, config, http.MethodGet, "/metrics", "") // has the errors of the one before
		if !strings.Contains(got.body, "\n"+`promhttp_metric_handler_errors_total{cause="gathering"} 0`+"\n") {
			t.Errorf("%d, and errors in gathering the metrics: %.1000s", got.code, got.body)
		}
		for _, m := range regexp.MustCompile(metric).FindAllStringSubmatch(got.body, -1) {
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

	soon := time.Now().Add(20 * 24 * time.Hour).Truncate(time.Second)
	for _, name := range []string{"ca", "front-proxy-ca"} {
		file := filepath.Join(s.data, "pki", name)
		signAnew(t, file+".crt", file+".key", soon)
	}
	lines, ends = run()
	line := `certificates end soon.*/ca\.crt ` + soon.UTC().Format(time.RFC3339) + ` \(client-ca-file\).*` +
		`/front-proxy-ca\.crt ` + soon.UTC().Format(time.RFC3339) + ` \(requestheader-client-ca-file\)`
	if len(lines) != 1 || !regexp.MustCompile(line).MatchString(lines[0]) {
		t.Errorf("the log has %q", lines)
	}
	for name, flag := range map[string]string{"ca": "client-ca-file", "front-proxy-ca": "requestheader-client-ca-file"} {
		file := filepath.Join(s.data, "pki", name+".crt")
		want := "the certificate " + file + " (" + flag + ") ends on " + soon.UTC().Format(time.DateOnly)
		if status.code != 1 || !strings.Contains(status.stdout, want) {
			t.Errorf("the status is %d\n%s", status.code, status.stdout)
		}
	}
	if got := ends["requestheader-client-ca-file"]; !got.Equal(soon) {
		t.Errorf("the metric says that it ends at %s, it is %s", got, soon)
	}

	// A host that runs takes note of it with the next reload.
	h := s.start(t, s.args()...)
	h.awaitReady(t)
	for _, name := range []string{"ca", "front-proxy-ca"} {
		file := filepath.Join(s.data, "pki", name)
		signAnew(t, file+".crt", file+".key", time.Now().Add(tenYears))
	}
	const both = "set apiserver.client-ca-file, apiserver.requestheader-client-ca-file"
	for _, want := range []string{both, "nothing has changed"} {
		if r := runCatena(t, "reload", "--data-dir", s.data); r.code != 0 || !strings.Contains(r.stdout, want) {
			t.Errorf("reload: %d\n%s%s", r.code, r.stdout, r.stderr)
		}
	}
	if r := runCatena(t, "status", "--data-dir", s.data); r.code != 0 || strings.Contains(r.stdout, "certificate") {
		t.Errorf("after the reload, the status is %d\n%s", r.code, r.stdout)
	}
	h.stop(t)

	h = s.start(t, s.args()...)
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
