package e2e

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
)

// authorities is a server that issues identity tokens and decides about access by
// webhooks, as a company has them.
type authorities struct {
	*httptest.Server
	caFile string
	ca     []byte
	key    *ecdsa.PrivateKey
}

func startAuthorities(t *testing.T) *authorities {
	t.Helper()
	ca, certFile, keyFile := newServingCertificate(t, "authorities.test")
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		t.Fatal(err)
	}
	key, _ := newKey(t)
	a := &authorities{ca: ca, caFile: testFile(t, "ca.crt", string(ca)), key: key}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, map[string]any{"issuer": a.URL, "jwks_uri": a.URL + "/keys", "response_types_supported": []string{"id_token"},
			"subject_types_supported": []string{"public"}, "id_token_signing_alg_values_supported": []string{"ES256"}})
	})
	mux.HandleFunc("GET /keys", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, map[string]any{"keys": []map[string]string{{"kty": "EC", "crv": "P-256", "use": "sig", "alg": "ES256",
			"x": base64url(key.X.FillBytes(make([]byte, 32))), "y": base64url(key.Y.FillBytes(make([]byte, 32)))}}})
	})
	mux.HandleFunc("POST /authenticate", serveReview(reviewToken))
	mux.HandleFunc("POST /authorize", serveReview(reviewAccess))
	a.Server = httptest.NewUnstartedServer(mux)
	a.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	a.StartTLS()
	t.Cleanup(a.Close)
	return a
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

func base64url(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// reviewToken knows one token.
func reviewToken(r *authenticationv1.TokenReview) error {
	if r.Spec.Token == "known-to-the-webhook" {
		r.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{Username: "wendy", Groups: []string{"hooked"}}}
	}
	return nil
}

// reviewAccess lets the group "hooked" read secrets, denies it config maps, and has no
// opinion on all else.
func reviewAccess(r *authorizationv1.SubjectAccessReview) error {
	if a := r.Spec.ResourceAttributes; a != nil {
		r.Status.Allowed = a.Resource == "secrets" && a.Verb == "list"
		r.Status.Denied = a.Resource == "configmaps"
		r.Status.Reason = "says the webhook"
	}
	return nil
}

// token is an identity token of the issuer.
func (a *authorities) token(t *testing.T, claims map[string]any) string {
	t.Helper()
	part := func(v any) string {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return base64url(b)
	}
	text := part(map[string]string{"alg": "ES256", "typ": "JWT"}) + "." + part(claims)
	digest := sha256.Sum256([]byte(text))
	r, s, err := ecdsa.Sign(rand.Reader, a.key, digest[:])
	if err != nil {
		t.Fatal(err)
	}
	signature := append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...)
	return text + "." + base64url(signature)
}

// claims are those of a good token.
func (a *authorities) claims(teams ...string) map[string]any {
	return map[string]any{"iss": a.URL, "aud": "catena", "sub": "olga", "teams": teams, "exp": time.Now().Add(time.Hour).Unix()}
}

// kubeconfig is how the API server reaches one of the webhooks.
func (a *authorities) kubeconfig(t *testing.T, path string) string {
	return testFile(t, "kubeconfig.yaml", fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: c,
clusters: [{name: c, cluster: {server: "%s%s", certificate-authority: "%s"}}], contexts: [{name: c, context: {cluster: c, user: u}}], users: [{name: u}]}`,
		a.URL, path, a.caFile))
}

func testFile(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
