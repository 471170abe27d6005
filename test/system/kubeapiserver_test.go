package system

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/keyutil"

	"github.com/catena-dev/catena/test/internal/cluster"
)

// asKubeAPIServer returns the path of Catena's program under the name kube-apiserver, alone in a directory.
func asKubeAPIServer(t *testing.T) string {
	t.Helper()
	bin, err := cluster.Bin()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "kube-apiserver")
	if err := os.Symlink(filepath.Join(bin, "catena"), path); err != nil {
		t.Fatal(err)
	}
	return path
}

func kubeAPIServerPath(t *testing.T) string {
	t.Helper()
	path, err := cluster.Tool("kube-apiserver")
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// result is what a command prints, and its exit code.
func result(t *testing.T, path string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(t.Context(), path, args...)
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = cluster.Environ(), t.TempDir(), &out, &errs
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// Catena's help has the flags of kube-apiserver in the same groups with the same words, and two more.
func TestHelpOfKubeAPIServer(t *testing.T) {
	t.Parallel()
	want, _, _ := result(t, kubeAPIServerPath(t), "--help")
	got, _, code := result(t, asKubeAPIServer(t), "--help")
	got, own, _ := strings.Cut(got, "Catena flags:")
	_, wantFlags, _ := strings.Cut(want, "\n\nUsage:\n")
	_, gotFlags, _ := strings.Cut(got, "\n\nUsage:\n")
	if strings.TrimSpace(gotFlags) != strings.TrimSpace(wantFlags) || code != 0 {
		t.Errorf("help with exit code %d:\n%s", code, gotFlags)
	}
	for _, flag := range []string{"--catena-config", "--catena-data-dir"} {
		if !strings.Contains(own, flag) {
			t.Errorf("%s is not in the help:\n%s", flag, own)
		}
	}
	wantVersion, _, _ := result(t, kubeAPIServerPath(t), "--version")
	if got, _, _ := result(t, asKubeAPIServer(t), "--version"); got != wantVersion {
		t.Errorf("version is %q, want %q", got, wantVersion)
	}
}

// logHead begins a line of the log about the error with which a server ends.
var logHead = regexp.MustCompile(`^E\d{4} .*\] "command failed" err=`)

// What kube-apiserver refuses, Catena refuses with the same words and the same exit code.
func TestRefusedCommandLines(t *testing.T) {
	t.Parallel()
	pem, err := keyutil.MakeEllipticPrivateKeyPEM()
	if err != nil {
		t.Fatal(err)
	}
	key := write(t, "service-account.key", string(pem))
	issuer := []string{"--etcd-servers=http://127.0.0.1:1", "--service-account-issuer=https://x", "--service-account-signing-key-file=" + key, "--service-account-key-file=" + key}
	for name, args := range map[string][]string{
		"unknown flag":        {"--no-such-flag"},
		"no value":            {"--secure-port"},
		"not a number":        {"--secure-port=many"},
		"not an address":      {"--bind-address=here"},
		"arguments":           {"serve"},
		"unknown gate":        append([]string{"--feature-gates=NoSuchGate=true"}, issuer...),
		"no issuer":           {"--etcd-servers=http://127.0.0.1:1"},
		"port out of range":   append([]string{"--secure-port=70000"}, issuer...),
		"unknown mode":        append([]string{"--authorization-mode=Everybody"}, issuer...),
		"unknown plugin":      append([]string{"--enable-admission-plugins=Perhaps"}, issuer...),
		"conflicting plugins": append([]string{"--enable-admission-plugins=NodeRestriction", "--disable-admission-plugins=NodeRestriction"}, issuer...),
		"missing key":         {"--etcd-servers=http://127.0.0.1:1", "--service-account-issuer=https://x", "--service-account-signing-key-file=/nowhere", "--service-account-key-file=/nowhere"},
		"log format":          append([]string{"--logging-format=poem"}, issuer...),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			certs := "--cert-dir=" + t.TempDir()
			if name == "arguments" {
				certs = ""
			}
			words := func(path string) (string, int) {
				_, stderr, code := result(t, path, append(slices.Clone(args), certs)...)
				lines := strings.Split(strings.TrimSpace(stderr), "\n")
				return logHead.ReplaceAllString(lines[len(lines)-1], "command failed: "), code
			}
			want, wantCode := words(kubeAPIServerPath(t))
			if got, code := words(asKubeAPIServer(t)); got != want || code != wantCode {
				t.Errorf("%q with exit code %d, want %q with %d", got, code, want, wantCode)
			}
		})
	}
}

// encryptSecrets is a configuration with which secrets are stored encrypted.
const encryptSecrets = `apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets]
  providers:
  - aescbc: {keys: [{name: one, secret: MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=}]}
  - identity: {}
`

// Catena takes over from kube-apiserver on the same etcd with the same flags, and gives it back: what one has
// written, the other serves, and the tokens of service accounts go on being valid.
func TestInPlaceOfKubeAPIServer(t *testing.T) {
	t.Parallel()
	k, err := cluster.NewKubeAPIServer(cluster.Options{Flags: map[string]string{"encryption-provider-config": write(t, "encryption.yaml", encryptSecrets)}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := k.Stop(t.Failed()); err != nil {
			t.Error(err)
		}
	})
	real, own := kubeAPIServerPath(t), asKubeAPIServer(t)
	turns := []string{real, own, real, own}
	tokens := make([]string, len(turns))
	for turn, path := range turns {
		if turn > 0 {
			if err := k.Process().Stop(); err != nil {
				t.Fatalf("turn %d: %v", turn-1, err)
			}
		}
		if err := k.Start(t.Context(), path); err != nil {
			t.Fatalf("turn %d: %s: %v", turn, path, err)
		}
		if tokens[turn], err = takeTurn(t.Context(), k.Server, turn); err != nil {
			t.Fatalf("turn %d: %v", turn, err)
		}
		for earlier := range turn + 1 {
			if err := findTurn(t.Context(), k.Server, earlier, tokens[earlier]); err != nil {
				t.Errorf("turn %d: what turn %d has left: %v", turn, earlier, err)
			}
		}
	}
	files, err := filepath.Glob(filepath.Join(k.CertDir(), "*"))
	if err != nil {
		t.Fatal(err)
	}
	for i, path := range files {
		files[i] = filepath.Base(path)
	}
	if want := []string{"apiserver.crt", "apiserver.key", "catena"}; !slices.Equal(files, want) {
		t.Errorf("in --cert-dir are %v, want %v", files, want)
	}
}

// takeTurn writes what a turn leaves, and returns a token.
func takeTurn(ctx context.Context, s *cluster.Server, turn int) (token string, err error) {
	admin, err := kubernetes.NewForConfig(s.Config(cluster.Admin))
	if err != nil {
		return "", err
	}
	meta := metav1.ObjectMeta{Name: fmt.Sprintf("turn-%d", turn), Namespace: "default"}
	_, err = admin.CoreV1().Secrets("default").Create(ctx, &corev1.Secret{ObjectMeta: meta, StringData: map[string]string{"turn": meta.Name}}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	if _, err := admin.CoreV1().ServiceAccounts("default").Create(ctx, &corev1.ServiceAccount{ObjectMeta: meta}, metav1.CreateOptions{}); err != nil {
		return "", err
	}
	request, err := admin.CoreV1().ServiceAccounts("default").CreateToken(ctx, meta.Name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	return request.Status.Token, nil
}

// findTurn looks for what a turn has left.
func findTurn(ctx context.Context, s *cluster.Server, turn int, token string) error {
	admin, err := kubernetes.NewForConfig(s.Config(cluster.Admin))
	if err != nil {
		return err
	}
	name := fmt.Sprintf("turn-%d", turn)
	secret, err := admin.CoreV1().Secrets("default").Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if string(secret.Data["turn"]) != name {
		return fmt.Errorf("secret has %q", secret.Data)
	}
	config := rest.AnonymousClientConfig(s.Config(cluster.Admin))
	config.BearerToken = token
	account, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	review, err := account.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	if want := "system:serviceaccount:default:" + name; review.Status.UserInfo.Username != want {
		return fmt.Errorf("the token is that of %s", review.Status.UserInfo.Username)
	}
	return nil
}
