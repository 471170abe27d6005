package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/catena-dev/catena/test/internal/cluster"
)

// startTLSEtcd starts an etcd that is not Catena's.
func startTLSEtcd(t *testing.T) (endpoint, caFile string) {
	t.Helper()
	path, err := cluster.Tool("etcd")
	if err != nil {
		t.Fatal(err)
	}
	ca, certFile, keyFile := newServingCertificate(t, "etcd.test")
	dir := t.TempDir()
	endpoint = "https://127.0.0.1:" + freePort(t)
	p, err := cluster.StartProcess(dir, "etcd", path, "--data-dir", filepath.Join(dir, "data"), "--cert-file", certFile, "--key-file", keyFile,
		"--listen-client-urls", endpoint, "--advertise-client-urls", endpoint, "--listen-peer-urls", "http://127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	return endpoint, testFile(t, "etcd-ca.crt", string(ca))
}

// plainConfig has no flags of its own, as configs/kube-apiserver.yaml has.
const plainConfig = `
apiVersion: catena.dev/v1alpha1
kind: HostConfiguration
stages: {aggregator: {delegate: core}, core: {delegate: extensions}, extensions: {}}
`

const authenticationConfig = `
apiVersion: apiserver.config.k8s.io/v1
kind: AuthenticationConfiguration
anonymous: {enabled: true, conditions: [{path: /livez}]}
jwt:
- issuer: {url: "URL", audiences: [catena], certificateAuthority: "CA"}
  claimMappings:
    username: {expression: '"company:" + claims.sub'}
    groups: {expression: "claims.teams"}
  userValidationRules: [{expression: "!user.groups.exists(g, g == 'system:masters')", message: "no masters from outside"}]
`

const authorizationConfig = `
apiVersion: apiserver.config.k8s.io/v1
kind: AuthorizationConfiguration
authorizers:
- {type: Node, name: node}
- type: Webhook
  name: company
  webhook:
    timeout: 5s
    subjectAccessReviewVersion: v1
    matchConditionSubjectAccessReviewVersion: v1
    failurePolicy: Deny
    connectionInfo: {type: KubeConfigFile, kubeConfigFile: "FILE"}
    matchConditions: [{expression: "'hooked' in request.groups"}]
- {type: RBAC, name: rbac}
`

const encryptionConfig = `
apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources: [{resources: [secrets], providers: [{aesgcm: {keys: [{name: k, secret: MDEyMzQ1Njc4OWFiY2RlZg==}]}}]}]
`

// A server as companies run it: identities from an issuer of OpenID Connect and from a
// webhook, access decided by a webhook beside RBAC, secrets encrypted, an etcd of its own.
func TestCompanyServer(t *testing.T) {
	t.Parallel()
	a := startAuthorities(t)
	endpoint, etcdCA := startTLSEtcd(t)
	files := companyFiles{authorization: testFile(t, "authorization.yaml", strings.Replace(authorizationConfig, "FILE", a.kubeconfig(t, "/authorize"), 1))}
	files.authentication = testFile(t, "authentication.yaml", strings.NewReplacer("URL", a.URL, "CA", strings.ReplaceAll(string(a.ca), "\n", `\n`)).Replace(authenticationConfig))
	c, err := cluster.StartCatena(t.Context(), cluster.Options{
		ConfigFile: testFile(t, "catena.yaml", plainConfig),
		Flags: map[string]string{
			"authorization-mode":                       "",
			"authorization-config":                     files.authorization,
			"authentication-config":                    files.authentication,
			"authentication-token-webhook-config-file": a.kubeconfig(t, "/authenticate"),
			"authentication-token-webhook-version":     "v1",
			"encryption-provider-config":               testFile(t, "encryption.yaml", encryptionConfig),
			"cors-allowed-origins":                     `//console\.test$`,
			"strict-transport-security-directives":     "max-age=31536000",
		},
		Set: []string{"store.endpoints=" + endpoint, "store.caFile=" + etcdCA},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(t.Failed()); err != nil {
			t.Error(err)
		}
	})
	t.Run("identity token", func(t *testing.T) { testIdentityToken(t, c, a) })
	t.Run("webhooks", func(t *testing.T) { testWebhookAccess(t, c) })
	t.Run("anonymous", func(t *testing.T) { testAnonymous(t, c) })
	t.Run("encryption", func(t *testing.T) { testEncryption(t, c, endpoint, etcdCA) })
	t.Run("headers", func(t *testing.T) { testBrowserHeaders(t, c) })
	t.Run("changed files", func(t *testing.T) { testChangedFiles(t, c, a, files) })
}

// companyFiles are files that the server reads again when they change.
type companyFiles struct{ authentication, authorization string }

// withToken is a client with a bearer token.
func withToken(t *testing.T, c *cluster.Catena, token string) *kubernetes.Clientset {
	t.Helper()
	config := rest.AnonymousClientConfig(c.Config(cluster.Admin))
	config.BearerToken = token
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func whoAmI(ctx context.Context, c kubernetes.Interface) (authenticationv1.UserInfo, error) {
	r, err := c.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return authenticationv1.UserInfo{}, err
	}
	return r.Status.UserInfo, nil
}

func testIdentityToken(t *testing.T, c *cluster.Catena, a *authorities) {
	// The issuer's keys are fetched in the background.
	var user authenticationv1.UserInfo
	eventually(t, "identity token", func(ctx context.Context) (err error) {
		user, err = whoAmI(ctx, withToken(t, c, a.token(t, a.claims("dev", "ops"))))
		return err
	})
	if user.Username != "company:olga" || strings.Join(user.Groups, " ") != "dev ops system:authenticated" {
		t.Errorf("the token's user is %+v", user)
	}
	expired := a.claims("dev")
	expired["exp"] = time.Now().Add(-time.Hour).Unix()
	for name, token := range map[string]string{"expired": a.token(t, expired), "refused by a rule": a.token(t, a.claims("system:masters"))} {
		if user, err := whoAmI(t.Context(), withToken(t, c, token)); err == nil {
			t.Errorf("%s token gives %+v", name, user)
		}
	}
}

func testWebhookAccess(t *testing.T, c *cluster.Catena) {
	wendy := withToken(t, c, "known-to-the-webhook")
	user, err := whoAmI(t.Context(), wendy)
	if err != nil || user.Username != "wendy" {
		t.Fatalf("the webhook's user is %+v, %v", user, err)
	}
	if _, err := wendy.CoreV1().Secrets("default").List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("allowed by the webhook: %v", err)
	}
	if _, err := wendy.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{}); err == nil || !strings.Contains(err.Error(), "says the webhook") {
		t.Errorf("denied by the webhook: %v", err)
	}
	// Core decides as the front does.
	if allowed, err := mayListSecrets(t.Context(), wendy); err != nil || !allowed {
		t.Errorf("review of what the webhook allows: %v, %v", allowed, err)
	}
}

// What decides about access can change while the server runs, in the front and in core
// alike.
func testChangedFiles(t *testing.T, c *cluster.Catena, a *authorities, files companyFiles) {
	edit := func(file, old, text string) {
		before, err := os.ReadFile(file)
		if err == nil {
			err = os.WriteFile(file, []byte(strings.Replace(string(before), old, text, 1)), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	edit(files.authentication, `"company:" +`, `"firm:" +`)
	edit(files.authorization, "'hooked' in request.groups", "'unhooked' in request.groups")
	wendy, token := withToken(t, c, "known-to-the-webhook"), a.token(t, a.claims("dev"))
	eventually(t, "files that have changed", func(ctx context.Context) error {
		user, err := whoAmI(ctx, withToken(t, c, token))
		if err != nil || user.Username != "firm:olga" {
			return fmt.Errorf("the token's user is %q, %w", user.Username, err)
		}
		if _, err := wendy.CoreV1().Secrets("default").List(ctx, metav1.ListOptions{}); err == nil {
			return errors.New("the front still asks the webhook")
		}
		if allowed, err := mayListSecrets(ctx, wendy); err != nil || allowed {
			return fmt.Errorf("core still asks the webhook: %v, %w", allowed, err)
		}
		return nil
	})
}

// mayListSecrets asks core.
func mayListSecrets(ctx context.Context, c kubernetes.Interface) (bool, error) {
	review, err := c.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: "default", Verb: "list", Resource: "secrets"}},
	}, metav1.CreateOptions{})
	if err != nil {
		return false, err
	}
	return review.Status.Allowed, nil
}

func testAnonymous(t *testing.T, c *cluster.Catena) {
	nobody := withToken(t, c, "")
	for path, allowed := range map[string]bool{"/livez": true, "/version": false} {
		_, err := nobody.RESTClient().Get().AbsPath(path).DoRaw(t.Context())
		if (err == nil) != allowed {
			t.Errorf("anonymous %s: %v", path, err)
		}
	}
}

func testEncryption(t *testing.T, c *cluster.Catena, endpoint, caFile string) {
	admin := withToken(t, c, c.Config(cluster.Admin).BearerToken)
	k := newKubectl(t, c.AdminKubeconfig())
	k.run("create", "secret", "generic", "hidden", "--from-literal=word=plaintext-word")
	if _, err := admin.CoreV1().Secrets("default").Get(t.Context(), "hidden", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	ca, err := os.ReadFile(caFile)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	etcd, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, TLS: &tls.Config{RootCAs: roots}})
	if err != nil {
		t.Fatal(err)
	}
	defer etcd.Close()
	stored, err := etcd.Get(t.Context(), "/registry/secrets/default/hidden")
	if err != nil || len(stored.Kvs) != 1 {
		t.Fatalf("in etcd: %v, %v", stored, err)
	}
	if value := stored.Kvs[0].Value; !bytes.HasPrefix(value, []byte("k8s:enc:aesgcm:v1:k:")) || bytes.Contains(value, []byte("plaintext-word")) {
		t.Errorf("the secret is stored as %q", value)
	}
}

func testBrowserHeaders(t *testing.T, c *cluster.Catena) {
	transport, err := rest.TransportFor(c.Config(cluster.Admin))
	if err != nil {
		t.Fatal(err)
	}
	for origin, want := range map[string]string{"https://console.test": "https://console.test", "https://evil.test": ""} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.URL+"/api/v1/namespaces/default", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Origin", origin)
		resp, err := transport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if got := resp.Header.Get("Access-Control-Allow-Origin"); got != want {
			t.Errorf("origin %s is answered with Access-Control-Allow-Origin %q", origin, got)
		}
		if got := resp.Header.Get("Strict-Transport-Security"); got != "max-age=31536000" {
			t.Errorf("Strict-Transport-Security is %q", got)
		}
	}
}
