package system

import (
	"net/http"
	"strings"
	"testing"

	"github.com/catena-dev/catena/test/internal/cluster"
)

// beforeKubernetes has a stage that sees all requests in front of Kubernetes' stages.
const beforeKubernetes = `
apiVersion: catena.dev/v1alpha1
kind: HostConfiguration
pluginDirs: [bin/plugins]
stages:
  hello: {delegate: aggregator, lock: off, grants: {claims: ["/**"]}}
  aggregator: {delegate: core}
  core: {delegate: extensions}
  extensions: {}
`

// A proxy in the environment of the host is for connections to elsewhere: the processes reach each other without it.
func TestProxyInTheEnvironment(t *testing.T) {
	t.Parallel()
	const dead = "http://127.0.0.1:1"
	var env []string
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"} {
		env = append(env, name+"="+dead, strings.ToLower(name)+"="+dead)
	}
	s := catena(t, cluster.Options{
		Env: env, ConfigFile: write(t, "catena.yaml", beforeKubernetes), PluginDirs: []string{plugins(t, "hello")},
	})
	admin := s.Config(cluster.Admin)
	if r := do(t, admin, http.MethodGet, "/readyz?verbose", ""); r.code != http.StatusOK {
		t.Errorf("%d %s", r.code, r.body)
	}
	if r := do(t, admin, http.MethodGet, "/api/v1/namespaces/default", "", wrapHeader+": hello"); r.code != http.StatusOK || r.header.Get(wrappedHeader) != "hello" {
		t.Errorf("a call of the next stage: %d %v %s", r.code, r.header, r.body)
	}
	if r := do(t, admin, http.MethodPost, "/api/v1/namespaces", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"beside"}}`); r.code != http.StatusCreated {
		t.Errorf("%d %s", r.code, r.body)
	}
	// Core's controllers have made it by calls of the host, and the aggregator knows the groups of all stages by its own.
	eventually(t, "what controllers of core make", func() bool {
		return do(t, admin, http.MethodGet, "/api/v1/namespaces/default/endpoints/kubernetes", "").code == http.StatusOK &&
			do(t, admin, http.MethodGet, "/apis/scheduling.k8s.io/v1/priorityclasses/system-node-critical", "").code == http.StatusOK &&
			strings.Contains(do(t, admin, http.MethodGet, "/apis", "").body, "apiextensions.k8s.io")
	})
}
