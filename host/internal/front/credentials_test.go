package front_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"

	kubeoptions "k8s.io/kubernetes/pkg/kubeapiserver/options"

	"github.com/catena-dev/catena/host/internal/pki"
	"github.com/catena-dev/catena/host/internal/relay/h1"
)

// credentialPlaces says, of each kind of authenticator that kube-apiserver's options have, in which parts of a request it looks for credentials.
// Of all these parts, nothing goes to a stage.
var credentialPlaces = map[string]string{
	"Anonymous":       "",
	"ClientCert":      "TLS", // which ends at the host
	"RequestHeader":   "TLS, front proxy headers",
	"BootstrapToken":  "token",
	"OIDC":            "token",
	"ServiceAccounts": "token",
	"TokenFile":       "token",
	"WebHook":         "token",

	// No authenticators of their own.
	"APIAudiences": "", "AuthenticationConfigFile": "token", "TokenSuccessCacheTTL": "", "TokenFailureCacheTTL": "",
}

// A token is in Authorization, or in a subprotocol of WebSocket; nowhere else, such as in the query or a cookie.
const (
	secretBearer = "SECRET-token"
	frontProxy   = "X-Remote-User: FORGED\nX-Remote-Group: FORGED\nX-Remote-Uid: FORGED\nX-Remote-Extra-A: FORGED\n" +
		"X-Proxied-User: FORGED\nX-Proxied-Group: FORGED\nX-Proxied-Uid: FORGED\nX-Proxied-Extra-A: FORGED"
)

// No credential of a client reaches a stage, however the client was authenticated.
func TestCredentialsStayInTheHost(t *testing.T) {
	t.Parallel()
	options := reflect.TypeFor[kubeoptions.BuiltInAuthenticationOptions]()
	for i := range options.NumField() {
		if _, known := credentialPlaces[options.Field(i).Name]; !known {
			t.Errorf("%s is new: where does it look for credentials, and does that reach stages?", options.Field(i).Name)
		}
	}
	flags := open(t)
	flags["token-auth-file"] = []string{writeFile(t, "tokens", secretBearer+",jane,1\n")}
	flags["enable-bootstrap-token-auth"] = []string{"true"}
	flags["requestheader-client-ca-file"] = []string{pki.FilesIn(certificates).FrontProxyCA}
	flags["requestheader-username-headers"] = []string{"X-Proxied-User", "X-Remote-User"}
	flags["requestheader-group-headers"] = []string{"X-Proxied-Group", "X-Remote-Group"}
	flags["requestheader-uid-headers"] = []string{"X-Proxied-Uid", "X-Remote-Uid"}
	flags["requestheader-extra-headers-prefix"] = []string{"X-Proxied-Extra-", "X-Remote-Extra-"}
	var s *server
	var head atomic.Pointer[string]
	s = start(t, flags, func(_ http.ResponseWriter, r *http.Request) {
		text, err := h1.AppendRequest(nil, r, false, s.Propagator())
		if err != nil {
			t.Error(err)
		}
		sent := string(s.Propagator().AppendRequestHeaders(text, r))
		head.Store(&sent)
	})
	const path = "/api/v1/namespaces"
	encoded := "base64url.bearer.authorization.k8s.io." + base64.RawURLEncoding.EncodeToString([]byte(secretBearer))
	tokens := "Authorization: Bearer " + secretBearer
	socket := "Sec-WebSocket-Protocol: " + encoded + ", v4.channel.k8s.io"
	upgrade := "Connection: Upgrade\nUpgrade: websocket\nSec-WebSocket-Version: 13\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="
	proxy := s.client(t, keyPair(t, s.files.FrontProxyClient, s.files.FrontProxyClientKey))
	for _, tc := range []struct {
		name    string
		c       *client
		headers []string
		user    string
	}{
		{"certificate", s.admin(t), []string{tokens, socket, frontProxy}, "kube-apiserver-kubelet-client"},
		{"token", s.client(t), []string{tokens, socket, frontProxy}, "jane"},
		{"token twice", s.client(t), []string{tokens, tokens, "Proxy-" + tokens}, "jane"},
		{"token and WebSocket", s.client(t), []string{tokens, socket, upgrade}, "jane"},
		{"WebSocket", s.client(t), []string{socket, upgrade}, "jane"},
		{"WebSocket, in another header too", s.client(t), []string{socket, "Sec-WebSocket-Protocol: BASE64URL" + strings.TrimPrefix(encoded, "base64url"), upgrade}, "jane"},
		{"certificate and WebSocket", s.admin(t), []string{socket, upgrade}, "kube-apiserver-kubelet-client"},
		{"front proxy", proxy, []string{tokens, socket, strings.ReplaceAll(frontProxy, "X-Proxied-User: FORGED", "X-Proxied-User: zoe")}, "zoe"},
		{"nobody", s.client(t), []string{socket, frontProxy, "Proxy-" + tokens}, "system:anonymous"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.c.http.Transport.(*http.Transport).ForceAttemptHTTP2 = false
			none := ""
			head.Store(&none)
			a := tc.c.get(t, path, strings.Split(strings.Join(tc.headers, "\n"), "\n")...)
			got := *head.Load()
			if a.code != http.StatusOK || !strings.Contains(got, fmt.Sprintf(`X-Catena-User: {"name":%q`, tc.user)) {
				t.Fatalf("%d %s\n%s", a.code, a.body, got)
			}
			// What the front proxy says is in X-Catena-User.
			rest := got[:strings.Index(got, "X-Catena-User")]
			for _, secret := range []string{"SECRET", encoded[40:], "FORGED", "zoe", "Authorization", "X-Remote", "X-Proxied"} {
				if strings.Contains(rest, secret) {
					t.Errorf("%s reaches a stage:\n%s", secret, got)
				}
			}
		})
	}
}
