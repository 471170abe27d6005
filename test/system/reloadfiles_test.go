package system

import (
	"crypto/tls"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/catena-dev/catena/test/internal/cluster"
)

const (
	anonymousForHealth = `apiVersion: apiserver.config.k8s.io/v1
kind: AuthenticationConfiguration
anonymous:
  enabled: true
  conditions: [{path: /livez}]
`
	authorizers = `apiVersion: apiserver.config.k8s.io/v1
kind: AuthorizationConfiguration
authorizers:
- {type: RBAC, name: rbac}
`
)

// A file of authentication or authorization that becomes invalid changes nothing, and the log and a metric say so; a valid one is read
// without a restart.
func TestReloadOfAuthFiles(t *testing.T) {
	t.Parallel()
	authentication, authorization := write(t, "authentication.yaml", anonymousForHealth), write(t, "authorization.yaml", authorizers)
	c := catena(t, cluster.Options{
		Flags: map[string]string{"authorization-mode": "", "authentication-config": authentication, "authorization-config": authorization},
		Set:   []string{"apiserver.authorization-mode=null"}, // which the configuration of the shipped chain has
	})
	anonymous := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	t.Cleanup(anonymous.CloseIdleConnections)
	status := func(path string) int {
		resp, err := anonymous.Get(c.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		return resp.StatusCode
	}
	if live, version := status("/livez"), status("/version"); live != http.StatusOK || version != http.StatusUnauthorized {
		t.Fatalf("anonymous requests: /livez %d, /version %d", live, version)
	}
	reloads := func(what, status string) int {
		family := regexp.MustCompile(`(?m)^apiserver_` + what + `_config_controller_automatic_reloads_total\{[^}]*status="` + status + `"[^}]*\} `)
		return len(family.FindAllString(kubectl(t, c.Server, "get", "--raw", "/metrics"), -1))
	}
	replace := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	for what, path := range map[string]string{"authentication": authentication, "authorization": authorization} {
		replace(path, "kind: Nothing\n")
		eventually(t, "the metric of "+what+" counts a failure", func() bool { return reloads(what, "failure") > 0 })
		eventually(t, "the log has a failure of "+what, func() bool {
			return regexp.MustCompile(`(?mi)\[ERROR\].*` + what + ` ?config`).MatchString(logOf(t, c))
		})
	}
	if live := status("/livez"); live != http.StatusOK {
		t.Errorf("after an invalid file: /livez %d", live)
	}
	if out := kubectl(t, c.Server, "get", "namespaces", "-o", "name"); !strings.Contains(out, "namespace/default") {
		t.Errorf("after an invalid file: %q", out)
	}
	replace(authentication, anonymousForHealth+"# read again\n")
	eventually(t, "the metric counts a success", func() bool { return reloads("authentication", "success") > 0 })
}
