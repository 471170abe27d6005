package system

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"maps"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"

	"github.com/catena-dev/catena/test/internal/cluster"
)

// badFiles are flags whose files are of no use.
var badFiles = map[string][]string{
	"audit policy of no kind":      {"audit-policy-file", "a: b\n", "audit-log-path", "-"},
	"audit policy not YAML":        {"audit-policy-file", "a: [\n", "audit-log-path", "-"},
	"audit policy with odd level":  {"audit-policy-file", "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Odd}]\n", "audit-log-path", "-"},
	"audit policy without rules":   {"audit-policy-file", "apiVersion: audit.k8s.io/v1\nkind: Policy\n", "audit-log-path", "-"},
	"audit webhook":                {"audit-policy-file", "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n", "audit-webhook-config-file", "a: [\n"},
	"admission of no kind":         {"admission-control-config-file", "a: b\n"},
	"admission with unknown key":   {"admission-control-config-file", "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nodd: 1\n"},
	"admission of a plugin":        {"admission-control-config-file", "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins: [{name: PodSecurity, configuration: {apiVersion: pod-security.admission.config.k8s.io/v1, kind: PodSecurityConfiguration, defaults: {enforce: odd}}}]\n"},
	"authentication of no kind":    {"authentication-config", "a: b\n"},
	"authentication without URL":   {"authentication-config", "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\njwt: [{issuer: {audiences: [a]}, claimMappings: {username: {claim: sub, prefix: \"\"}}}]\n"},
	"authorization of no kind":     {"authorization-config", "a: b\n", "authorization-mode", ""},
	"authorization without any":    {"authorization-config", "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\n", "authorization-mode", ""},
	"authorization of odd type":    {"authorization-config", "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers: [{type: Odd, name: odd}]\n", "authorization-mode", ""},
	"authorization twice":          {"authorization-config", "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers: [{type: RBAC, name: rbac}]\n"},
	"encryption of no kind":        {"encryption-provider-config", "a: b\n"},
	"encryption with short key":    {"encryption-provider-config", encryption("{aesgcm: {keys: [{name: a, secret: YQ==}]}}")},
	"encryption with unknown key":  {"encryption-provider-config", encryption("{odd: {}}")},
	"encryption without providers": {"encryption-provider-config", encryption()},
	"tracing of no kind":           {"tracing-config-file", "a: b\n"},
	"tracing with too much":        {"tracing-config-file", "apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\nsamplingRatePerMillion: 2000000\n"},
	"egress of no kind":            {"egress-selector-config-file", "a: b\n"},
	"egress with odd name":         {"egress-selector-config-file", "apiVersion: apiserver.k8s.io/v1beta1\nkind: EgressSelectorConfiguration\negressSelections: [{name: odd, connection: {proxyProtocol: Direct}}]\n"},
	"egress twice":                 {"egress-selector-config-file", "apiVersion: apiserver.k8s.io/v1beta1\nkind: EgressSelectorConfiguration\negressSelections: [{name: cluster, connection: {proxyProtocol: Direct}}, {name: cluster, connection: {proxyProtocol: Direct}}]\n"},
	"client CA":                    {"client-ca-file", "no certificate\n"},
	"certificate":                  {"tls-cert-file", "no certificate\n", "tls-private-key-file", "no key\n"},
	"certificate without key":      {"tls-cert-file", "no certificate\n"},
	"key of service accounts":      {"service-account-key-file", "no key\n"},
	"signing key":                  {"service-account-signing-key-file", "no key\n"},
	"token file":                   {"token-auth-file", "one,column\n"},
	"authorization webhook":        {"authorization-webhook-config-file", "a: [\n", "authorization-mode", "Webhook"},
	"authentication webhook":       {"authentication-token-webhook-config-file", "a: [\n"},
	"front proxy's CA":             {"requestheader-client-ca-file", "no certificate\n"},
	"certificate of the proxy":     {"proxy-client-cert-file", "no certificate\n"},
	"anonymous twice":              {"authentication-config", "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\nanonymous: {enabled: true}\n", "anonymous-auth", "true"},
	"both OIDC":                    {"authentication-config", "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\n", "oidc-issuer-url", "https://x"},
	"reload without encryption":    {"encryption-provider-config-automatic-reload", "true"},
	"goaway":                       {"goaway-chance", "0.5"},
	"overrides":                    {"etcd-servers-overrides", "events"},
}

// A file or flag that is of no use ends Catena as it ends kube-apiserver: with the same words, behind the name of the stage if it is a
// stage that reads the file, and the same exit code.
func TestBadFiles(t *testing.T) {
	t.Parallel()
	k, err := cluster.NewKubeAPIServer(cluster.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = k.Stop(false) })
	all := maps.Clone(badFiles)
	all["half-rotated certificate"] = halfRotated(t)
	for name, flags := range all {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := badArgs(t, k.Args(), append([]string{"secure-port", closedPort(t)}, flags...))
			want, wantCode := lastWords(t, kubeAPIServerPath(t), args)
			if wantCode == 0 {
				t.Fatalf("kube-apiserver ends with %q", want)
			}
			got, code := lastWords(t, asKubeAPIServer(t), args)
			if got = stagePrefix.ReplaceAllString(got, ""); got != want || code != wantCode {
				t.Errorf("%q with exit code %d,\nwant %q with %d", got, code, want, wantCode)
			}
		})
	}
}

// halfRotated is a new certificate with the old key.
func halfRotated(t *testing.T) []string {
	t.Helper()
	certificate, _, err := cert.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
	_, key, err2 := cert.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	return []string{"tls-cert-file", string(certificate), "tls-private-key-file", string(key)}
}

// badArgs adds flags; those whose value is not on the command line have a file with it.
func badArgs(t *testing.T, args, flags []string) []string {
	t.Helper()
	args = slices.Clone(args)
	for i := 0; i < len(flags); i += 2 {
		name, value := flags[i], flags[i+1]
		if strings.HasSuffix(value, "\n") {
			value = write(t, "file.yaml", value)
		}
		args = slices.DeleteFunc(args, func(arg string) bool { return strings.HasPrefix(arg, "--"+name+"=") })
		if value != "" {
			args = append(args, "--"+name+"="+value)
		}
	}
	return args
}

// lastWords is what a program prints at last, and its exit code; nothing if it does not end.
func lastWords(t *testing.T, path string, args []string) (string, int) {
	t.Helper()
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, append(args, "--cert-dir="+filepath.Join(dir, "certs"))...)
	var out bytes.Buffer
	cmd.Env, cmd.Dir, cmd.Stderr = cluster.Environ(), dir, &out
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) && !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	if ctx.Err() != nil {
		return "it does not end", 0
	}
	text := out.String()
	at := lastError.FindStringIndex(text)
	if at == nil {
		return "no error: " + text, cmd.ProcessState.ExitCode()
	}
	text = text[at[1]:]
	if next := laterLine.FindStringIndex(text); next != nil {
		text = text[:next[0]] // goroutines that wait for caches log while their process ends, in both programs
	}
	words := strings.TrimPrefix(strings.Trim(strings.TrimSpace(text), "<>"), "| ")
	words = strings.NewReplacer("\n  | ", " ", "\\n", " ", "\\t", " ", `\"`, `"`).Replace(words)
	return strings.Trim(strings.Join(strings.Fields(words), " "), `"`), cmd.ProcessState.ExitCode()
}

var (
	// lastError begins the error with which a program ends, in kube-apiserver's log or in Catena's.
	lastError = regexp.MustCompile(`(?m)^(E\d{4} .*\] "command failed" err|\S+ \[ERROR\] .*command failed:\s+error)=`)
	// laterLine begins what is logged after it.
	laterLine = regexp.MustCompile(`(?m)^([IWEF]\d{4} |\d{4}-\d\d-\d\dT\S+ \[[A-Z]+\])`)
	// stagePrefix says which stage an error is of.
	stagePrefix = regexp.MustCompile(`^stage "[a-z]+": [A-Z]\w+: [a-z]+: (storage: )?`)
)

// kube-apiserver serves an expired certificate without a word, and so does Catena in its place.
func TestExpiredCertificate(t *testing.T) {
	t.Parallel()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(-time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	keyPEM, err2 := keyutil.MarshalPrivateKeyToPEM(key)
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	files := map[string]string{
		"tls-cert-file":        write(t, "tls.crt", string(pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: der}))),
		"tls-private-key-file": write(t, "tls.key", string(keyPEM)),
	}
	for _, path := range []string{kubeAPIServerPath(t), asKubeAPIServer(t)} {
		startCommandLine(t, path, files)
	}
}
