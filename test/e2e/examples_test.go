package e2e

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/catena-dev/catena/test/internal/cluster"
)

// installExamples puts examples into a directory of plugins: those that have been built beside
// the binaries of CATENA_BIN, if there are any. To link the large ones takes much memory.
func installExamples(t *testing.T, dir string, names ...string) {
	t.Helper()
	for _, name := range names {
		built := filepath.Join(os.Getenv("CATENA_BIN"), "examples", "catena-stage-"+name)
		if os.Getenv("CATENA_BIN") == "" || copyFile(filepath.Join(dir, "catena-stage-"+name), built) != nil {
			buildStage(t, dir, name, "./examples/"+name)
		}
	}
}

// buildStage builds the stage in a directory of the module.
func buildStage(t *testing.T, dir, name, directory string) {
	t.Helper()
	build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", filepath.Join(dir, "catena-stage-"+name), directory)
	build.Dir = cluster.Root()
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// startMiddleware starts a Catena with all middleware examples upstream of the
// aggregator, and a stage that knows the first version of the protocol alone.
func startMiddleware(t *testing.T) (s *system, dir string) {
	t.Helper()
	dir = t.TempDir()
	installExamples(t, dir, "hello", "readonly", "ratelimit", "cache", "tenancy")
	buildStage(t, dir, "old", "./test/compatible/testdata/v1")
	policy, log := filepath.Join(dir, "policy.yaml"), filepath.Join(dir, auditLog)
	if err := os.WriteFile(policy, []byte("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	flags := map[string]string{"audit-policy-file": policy, "audit-log-path": log}
	c, err := cluster.StartCatena(t.Context(), cluster.Options{Flags: flags, PluginDirs: []string{dir}, Set: []string{
		`stages.readonly={"lock":"off","delegate":"hello","grants":{"claims":["/**"]},"config":{"message":"come back on Monday"}}`,
		`stages.hello={"lock":"off","delegate":"ratelimit","livenessTimeout":"0s"}`, // it will be suspended
		`stages.ratelimit={"lock":"off","delegate":"cache","grants":{"claims":["/**"]},"config":{"rate":0.01,"burst":20,"exempt":["system:masters","system:catena:stages","system:nodes","devs"]}}`,
		`stages.cache={"lock":"off","delegate":"tenancy","grants":{"claims":["/api/v1/**","/apis/**"],"systemRequests":true},"config":{"ttl":"1h"}}`,
		`stages.tenancy={"lock":"off","delegate":"old","grants":{"rewrite":true}}`,
		`stages.old={"lock":"off","delegate":"aggregator","grants":{"claims":["/**"],"rewrite":true,"delegates":true,"systemRequests":true}}`,
	}})
	if err != nil {
		t.Fatal(err)
	}
	s = &system{Catena: c, config: c.Config(cluster.Admin), users: map[string]string{}}
	t.Cleanup(func() {
		if err := s.stop(t.Failed()); err != nil {
			t.Error(err)
		}
	})
	if err := s.makeClients(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s, dir
}

// auditLog is the name of the audit log in the directory of startMiddleware.
const auditLog = "audit.log"

// answer is what a user gets for a GET, of one of the media types if there are any.
func (s *system) answer(t *testing.T, user, path string, accept ...string) (*http.Response, string) {
	t.Helper()
	client, err := rest.HTTPClientFor(s.Config(user))
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header["Accept"] = accept
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

// The middleware examples do to kubectl's requests what their READMEs say, one after
// the other.
func TestMiddleware(t *testing.T) {
	t.Parallel()
	s, dir := startMiddleware(t)
	k := s.kubectlAs(t, cluster.Admin)
	k.run("create", "clusterrole", "everyone", "--verb=*", "--resource=configmaps")
	k.run("create", "clusterrolebinding", "everyone", "--clusterrole=everyone", "--group=system:authenticated")
	k.run("create", "clusterrole", "hello", "--verb=get", "--non-resource-url=/hello")
	k.run("create", "clusterrolebinding", "hello", "--clusterrole=hello", "--user=alice")
	k.run("create", "configmap", "first", "--from-literal=a=1")
	alice := k.with(s.users[cluster.Alice])
	eventuallyPrints(alice, func(out string) bool { return out == "hello\n" }, "get", "--raw", "/hello")
	eventuallyPrints(alice, func(out string) bool { return !strings.Contains(out, "forbidden") }, "get", "configmaps")

	t.Run("hello", func(t *testing.T) {
		alice.in(t).equal("hello", "get", "--raw", "/hello")
		k.with(s.users[cluster.Bob]).in(t).fail("", []string{"get", "--raw", "/hello"}, "forbidden")
	})
	t.Run("old", func(t *testing.T) {
		k := k.in(t)
		k.equal("old true", "get", "--raw", "/old")
		k.contains("what is behind it", k.run("get", "--raw", "/old/next/api"), `"kind":"APIVersions"`)
		k.fail("", []string{"get", "--raw", "/old/else"}, "NotFound")
	})
	t.Run("pages about stages", func(t *testing.T) {
		const pages = "/debug/catena/stages/"
		for _, c := range []struct {
			user, path, contains string
			code                 int
			accept               string
		}{
			{user: cluster.Admin, path: "core/flagz", code: http.StatusOK, contains: `"kind":"Flagz"`, accept: "application/json;v=v1beta1;g=config.k8s.io;as=Flagz"},
			{user: cluster.Admin, path: "core/flagz", code: http.StatusOK, contains: "enable-admission-plugins"},
			{user: cluster.Admin, path: "core/statusz", code: http.StatusOK, contains: "Go version"},
			{user: cluster.Admin, path: "hello/statusz", code: http.StatusOK, contains: "Go version"},
			{user: cluster.Admin, path: "core/pprof/goroutine?debug=1", code: http.StatusOK, contains: "goroutine profile: total"},
			{user: cluster.Admin, path: "core/pprof/nothing", code: http.StatusNotFound, contains: "nothing"},
			{user: cluster.Admin, path: "old/statusz", code: http.StatusNotImplemented, contains: `stage \"old\" has no profiles and no other pages`},
			{user: cluster.Admin, path: "nobody/statusz", code: http.StatusNotFound, contains: "nobody"},
			{user: cluster.Bob, path: "core/pprof/heap", code: http.StatusForbidden, contains: "forbidden"},
		} {
			resp, body := s.answer(t, c.user, pages+c.path, c.accept)
			if resp.StatusCode != c.code || !strings.Contains(body, c.contains) {
				t.Errorf("%s for %q: %d %.300s, want %d with %q", c.path, c.user, resp.StatusCode, body, c.code, c.contains)
			}
		}
	})
	t.Run("readonly", func(t *testing.T) {
		alice.in(t).equal("1", "get", "configmap", "first", "-o", "jsonpath={.data.a}")
		alice.in(t).fail("", []string{"create", "configmap", "second"}, "come back on Monday")
		alice.in(t).fail("", []string{"delete", "configmap", "first"}, "come back on Monday")
		k.in(t).run("create", "configmap", "second")
	})
	t.Run("ratelimit", func(t *testing.T) {
		last := 0
		for range 21 {
			resp, _ := s.answer(t, cluster.Bob, "/api/v1/namespaces/default/configmaps")
			last = resp.StatusCode
		}
		if resp, body := s.answer(t, cluster.Bob, "/api/v1/namespaces/default/configmaps"); last != 429 || resp.StatusCode != 429 || resp.Header.Get("Retry-After") == "" {
			t.Errorf("%d, %d %s", last, resp.StatusCode, body)
		}
	})
	t.Run("cache", func(t *testing.T) {
		const list = "/api/v1/namespaces/default/configmaps?resourceVersion=0"
		_, first := s.answer(t, cluster.Alice, list)
		resp, second := s.answer(t, cluster.Alice, list)
		if resp.Header.Get("Age") == "" || first != second {
			t.Errorf("not from memory: %v", resp.Header)
		}
		k.in(t).run("create", "configmap", "third")
		if resp, third := s.answer(t, cluster.Alice, list); resp.Header.Get("Age") != "" {
			t.Errorf("from memory after a write: %s", third)
		}
	})
	t.Run("tenancy", func(t *testing.T) { tenant(t, s, k.in(t)) })
	t.Run("audit", func(t *testing.T) {
		eventually(t, "annotations of the stages", func(context.Context) error {
			text, err := os.ReadFile(filepath.Join(dir, auditLog))
			for _, want := range []string{`"readonly.stage.catena.dev/refused":"true"`, `"tenancy.stage.catena.dev/namespace":"tenant-acme"`, `"rewrite.catena.dev/tenancy":"GET /api/v1/namespaces/tenant-acme/configmaps`} {
				if err == nil && !strings.Contains(string(text), want) {
					err = errors.New("no " + want)
				}
			}
			return err
		})
	})
	t.Run("metrics", func(t *testing.T) {
		k := k.in(t)
		// A stage that is slow is missing.
		pollKubectl(k, []string{
			`cache_requests_total{result="hit",stage="cache"} 1`, `ratelimit_users{stage="ratelimit"} 1`,
			`catena_stage_scrape_success{stage="hello"} 1`, `catena_stage_scrape_success{stage="old"} 1`, `catena_relay_hops_total{outcome="declined",stage="readonly"}`,
			`apiserver_request_total{`, `stage="core"`, `process_start_time_seconds{stage="tenancy"}`, `etcd_request_duration_seconds_count{`,
		}, "get", "--raw", "/metrics")
		suspended(t, s, k)
	})
}

// A stage that hangs is missing in /metrics, and nothing else is.
func suspended(t *testing.T, s *system, k *kubectl) {
	pid := s.Stages()["hello"]
	if err := cluster.Suspend(pid); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Kill(pid, syscall.SIGCONT) }()
	others := []string{`catena_stage_scrape_success{stage="core"} 1`, `process_start_time_seconds{stage="readonly"}`}
	eventuallyPrints(k, func(out string) bool {
		k.contains("/metrics", out, `catena_stage_scrape_success{stage="hello"} 0`)
		if strings.Contains(out, `process_start_time_seconds{stage="hello"}`) {
			t.Error("/metrics has series of a stage that hangs")
		}
		return !slices.ContainsFunc(others, func(want string) bool { return !strings.Contains(out, want) })
	}, "get", "--raw", "/metrics")
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	eventuallyPrints(k, func(out string) bool { return strings.Contains(out, `catena_stage_scrape_success{stage="hello"} 1`) }, "get", "--raw", "/metrics")
}

func tenant(t *testing.T, s *system, k *kubectl) {
	k.run("create", "namespace", "tenant-acme")
	k.run("create", "configmap", "other")
	k.pipe(strings.TrimSpace(`
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: tenant-acme},
 rules: [{nonResourceURLs: ["/tenants/acme/*"], verbs: [get]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: tenant-acme},
 roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: tenant-acme}, subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: alice}]}`),
		"apply", "-f", "-")
	k.run("create", "rolebinding", "tenant", "--clusterrole=view", "--user=alice", "-n", "tenant-acme")
	acme := []string{"--server", s.URL + "/tenants/acme", "-n", "tenant-acme"}
	k.run(append(acme, "create", "configmap", "mine")...)
	alice := k.with(s.users[cluster.Alice])
	eventuallyPrints(alice, func(out string) bool { return out == "configmap/mine\n" }, append(acme, "get", "configmaps", "-A", "-o", "name")...)
	// What the stage makes of a request is authorized, too.
	alice.fail("", append(acme, "get", "nodes"), "Forbidden")
	alice.fail("", append(acme, "get", "secrets"), `cannot list resource "secrets" in API group "" in the namespace "tenant-acme"`)
	alice.fail("", append(acme, "get", "configmaps", "-n", "default"), "tenant acme cannot reach this path")
	alice.fail("", []string{"--server", s.URL + "/tenants/other", "-n", "tenant-acme", "get", "configmaps"}, "Forbidden")
}
