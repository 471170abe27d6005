package system

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/catena-dev/catena/sdk/stagev1"
	"github.com/catena-dev/catena/test/internal/cluster"
)

// longChain has a stage of the tests upstream of, between and downstream of Kubernetes'
// own, and a third-party API group. The order of the lines does not matter.
const longChain = `apiVersion: catena.dev/v1alpha1
kind: HostConfiguration
log: {stageLevel: warn}
stages:
  extensions: {delegate: behind}
  wardle: {lock: off, delegate: extensions, grants: {claims: [/apis, /apis/, "/openapi/**"], store: registry, network: true}}
  behind: {lock: off, grants: {claims: ["/**"], systemRequests: true}}
  front: {lock: off, delegate: aggregator, grants: {claims: ["/**"], systemRequests: true}}
  core: {delegate: wardle}
  aggregator: {delegate: middle}
  middle: {lock: off, delegate: core, grants: {claims: ["/**"], systemRequests: true}}
`

// long is a Catena with longChain, and what it was started with.
type long struct {
	*cluster.Catena
	config, plugins string
	auditLog        string
	spans           *collector
	askers          sync.Once
}

// longCatena is shared by the tests that do no harm to it.
var longCatena = sync.OnceValues(func() (*long, error) {
	dir, err := os.MkdirTemp("", "system")
	if err != nil {
		return nil, err
	}
	onStop(func(bool) error { return os.RemoveAll(dir) })
	l := &long{config: filepath.Join(dir, "catena.yaml"), plugins: filepath.Join(dir, "plugins"), auditLog: filepath.Join(dir, "audit.log")}
	l.spans, err = startCollector()
	if err != nil {
		return nil, err
	}
	onStop(l.spans.stop)
	policy, tracing := filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "tracing.yaml")
	for path, text := range map[string]string{l.config: longChain, policy: auditPolicy, tracing: l.spans.config()} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return nil, err
		}
	}
	if err := errorsOf(os.Mkdir(l.plugins, 0o755), linkPlugins(l.plugins, "front", "middle", "behind", "wardle")); err != nil {
		return nil, err
	}
	l.Catena, err = cluster.StartCatena(context.Background(), cluster.Options{
		ConfigFile: l.config, PluginDirs: []string{l.plugins},
		Flags: map[string]string{
			"audit-policy-file": policy, "audit-log-path": l.auditLog, "tracing-config-file": tracing,
			"etcd-count-metric-poll-period": "1s",
		},
	})
	if err != nil {
		return nil, err
	}
	onStop(l.Stop)
	return l, nil
})

func (l *long) audited() *audited { return &audited{l.Server, l.auditLog} }

// theLong returns the shared Catena.
func theLong(t *testing.T) *long {
	t.Helper()
	l, err := longCatena()
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// response is a response as a client gets it.
type response struct {
	code   int
	header http.Header
	body   string
}

// seen is what a test stage says of the request that it got.
func (a response) seen(t *testing.T) seen {
	t.Helper()
	var s seen
	if err := json.Unmarshal([]byte(a.body), &s); err != nil || a.code != http.StatusOK {
		t.Fatalf("no test stage has responded: %d %s", a.code, a.body)
	}
	return s
}

// do sends a request with the headers, given as "Key: value".
func do(t *testing.T, config *rest.Config, method, path, body string, headers ...string) response {
	t.Helper()
	return doWith(t, config, method, path, body, headerOf(headers))
}

func doWith(t *testing.T, config *rest.Config, method, path, body string, header http.Header) response {
	t.Helper()
	resp := send(t, config, method, path, body, header)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	for key := range resp.Header {
		if strings.HasPrefix(key, stagev1.HeaderPrefix) {
			t.Errorf("%s %s: the client gets %s: %q", method, path, key, resp.Header[key])
		}
	}
	return response{resp.StatusCode, resp.Header, string(text)}
}

// headerOf makes a header of lines "Key: value".
func headerOf(lines []string) http.Header {
	header := http.Header{}
	for _, line := range lines {
		key, value, _ := strings.Cut(line, ": ")
		header.Add(key, value)
	}
	return header
}

// httpClient is a client with a user's token.
func httpClient(t *testing.T, config *rest.Config) *http.Client {
	t.Helper()
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// send is do for responses that do not end. The caller closes the body.
func send(t *testing.T, config *rest.Config, method, path, body string, header http.Header) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, config.Host+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for key, values := range header {
		req.Header[key] = values
	}
	resp, err := httpClient(t, config).Do(req)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return resp
}

// clientset is a client for a user.
func clientset(t *testing.T, s *cluster.Server, user string) kubernetes.Interface {
	t.Helper()
	c, err := kubernetes.NewForConfig(s.Config(user))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// kubectl runs kubectl as the administrator and returns its standard output.
func kubectl(t *testing.T, s *cluster.Server, args ...string) string {
	t.Helper()
	out, err := s.Kubectl(context.Background(), t.TempDir(), args...) // also when the test has ended
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// applying has a lock for each manifest on each server.
var applying sync.Map

// apply sends a manifest with kubectl.
func apply(t *testing.T, s *cluster.Server, manifest string) {
	t.Helper()
	// Two that create the same would meet: the second would find that it exists.
	lock, _ := applying.LoadOrStore(s.URL+manifest, new(sync.Mutex))
	lock.(*sync.Mutex).Lock()
	defer lock.(*sync.Mutex).Unlock()
	kubectl(t, s, "apply", "-f", write(t, "manifest.yaml", manifest))
}

// counter is the sum of a metric's samples whose labels contain all of the texts.
func counter(t *testing.T, config *rest.Config, name string, labels ...string) float64 {
	t.Helper()
	sum := 0.0
	for line := range strings.Lines(do(t, config, http.MethodGet, "/metrics", "").body) {
		rest, ok := strings.CutPrefix(line, name)
		if !ok || rest[0] != '{' && rest[0] != ' ' {
			continue
		}
		ok = true
		for _, l := range labels {
			ok = ok && strings.Contains(rest, l)
		}
		var value float64
		if _, err := fmt.Sscan(rest[strings.LastIndexByte(strings.TrimSpace(rest), ' '):], &value); ok && err == nil {
			sum += value
		}
	}
	return sum
}
