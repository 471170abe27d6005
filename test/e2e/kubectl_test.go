package e2e

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/version"
)

func configMap(name, data string) string {
	return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + name + "}\ndata: {" + data + "}\n"
}

func TestKubectlApply(t *testing.T) {
	t.Parallel()
	k := shared(t).kubectl(t)
	for _, step := range []struct{ data, want string }{
		{"a: '1', b: '1'", "configmap/settings created"},
		{"a: '1', b: '1'", "configmap/settings unchanged"},
		{"a: '2'", "configmap/settings configured"},
	} {
		if got := k.pipe(configMap("settings", step.data), "apply", "-f", "-"); got != step.want {
			t.Errorf("apply of {%s} prints %q, want %q", step.data, got, step.want)
		}
	}
	k.equal(`{"a":"2"}`, "get", "configmap", "settings", "-o", "jsonpath={.data}")
	k.pipe(configMap("settings", "a: '3'"), "apply", "--dry-run=server", "-f", "-")
	k.equal("2", "get", "configmap", "settings", "-o", "jsonpath={.data.a}")
	k.equal("configmap/settings labeled", "label", "configmap", "settings", "tier=low")
	k.equal("configmap/settings patched", "patch", "configmap", "settings", "--type=json",
		"-p", `[{"op":"replace","path":"/data/a","value":"4"}]`)
	k.equal("4 low", "get", "configmap", "settings", "-o", "jsonpath={.data.a} {.metadata.labels.tier}")
	k.equal(`configmap "settings" deleted from `+k.namespace+" namespace", "delete", "configmap", "settings")
}

func TestKubectlMatchesServerVersion(t *testing.T) {
	t.Parallel()
	k := shared(t).kubectl(t)
	k.run("get", "configmaps", "--match-server-version")
	var got struct{ ClientVersion, ServerVersion version.Info }
	if err := json.Unmarshal([]byte(k.run("version", "-o", "json")), &got); err != nil {
		t.Fatal(err)
	}
	server := got.ServerVersion
	if !regexp.MustCompile(`^[0-9a-f]{40}$`).MatchString(server.GitCommit) || server.GitTreeState != "clean" {
		t.Errorf("the server reports commit %q and tree state %q, want a commit's hash and \"clean\"", server.GitCommit, server.GitTreeState)
	}
	if built, err := time.Parse(time.RFC3339, server.BuildDate); err != nil || built.Year() < 2020 {
		t.Errorf("the server reports build date %q, want the time of the release", server.BuildDate)
	}
	if client := got.ClientVersion; client.GitCommit != server.GitCommit || client.BuildDate != server.BuildDate {
		t.Errorf("kubectl reports %s of %s, the server %s of %s", client.GitCommit, client.BuildDate, server.GitCommit, server.BuildDate)
	}
}

func TestKubectlServerSideApply(t *testing.T) {
	t.Parallel()
	k := shared(t).kubectl(t)
	apply := func(manager string, more ...string) []string {
		return append([]string{"apply", "--server-side", "--field-manager=" + manager, "-f", "-"}, more...)
	}
	if got := k.pipe(configMap("owned", "a: '1', b: '1'"), apply("first")...); got != "configmap/owned serverside-applied" {
		t.Errorf("apply prints %q", got)
	}
	k.pipe(configMap("owned", "c: '1'"), apply("second")...) // a field of its own
	k.fail(configMap("owned", "a: '2'"), apply("second"), `conflict with "first"`, ".data.a")
	k.equal("1", "get", "configmap", "owned", "-o", "jsonpath={.data.a}")
	k.pipe(configMap("owned", "a: '2'"), apply("second", "--force-conflicts")...)
	// The first manager still owns b, the second has given up c.
	k.equal(`{"a":"2","b":"1"}`, "get", "configmap", "owned", "-o", "jsonpath={.data}")
	fields := k.run("get", "configmap", "owned", "--show-managed-fields", "-o",
		`jsonpath={.metadata.managedFields[?(@.manager=="second")].fieldsV1}`)
	k.contains("the second manager's fields", fields, `"f:a"`)
}

func TestKubectlDiff(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("diff"); err != nil {
		t.Skip("kubectl diff needs the program diff")
	}
	k := shared(t).kubectl(t)
	k.pipe(configMap("settings", "a: '1'"), "apply", "-f", "-")
	if out, _, code := k.try(configMap("settings", "a: '1'"), "diff", "-f", "-"); code != 0 || out != "" {
		t.Errorf("diff of what is there: exit code %d and %q, want nothing", code, out)
	}
	out, _, code := k.try(configMap("settings", "a: '2'"), "diff", "--server-side", "-f", "-")
	if code != 1 {
		t.Errorf("diff of a change: exit code %d, want 1", code)
	}
	k.contains("the diff", out, `-  a: "1"`, `+  a: "2"`)
	k.equal("1", "get", "configmap", "settings", "-o", "jsonpath={.data.a}")
}

func TestKubectlPrune(t *testing.T) {
	t.Parallel()
	k := shared(t).kubectl(t)
	labeled := func(name string) string {
		return strings.Replace(configMap(name, "a: '1'"), "{name: ", "{labels: {app: pruned}, name: ", 1)
	}
	k.run("wait", "--for=create", "configmap/kube-root-ca.crt", patiently)
	prune := []string{"apply", "--prune", "-l", "app=pruned", "--prune-allowlist=core/v1/ConfigMap", "-f", "-"}
	k.pipe(configMap("bystander", "a: '1'"), "apply", "-f", "-")
	k.pipe(labeled("kept")+"---\n"+labeled("dropped"), prune...)
	k.contains("apply --prune", k.pipe(labeled("kept"), prune...), "configmap/kept unchanged", "configmap/dropped pruned")
	k.equal("configmap/bystander\nconfigmap/kept\nconfigmap/kube-root-ca.crt", "get", "configmap", "-o", "name")

	set := k.setenv("KUBECTL_APPLYSET=true")
	apply := []string{"apply", "--prune", "--applyset=mine", "-f", "-"}
	set.pipe(configMap("one", "a: '1'")+"---\n"+configMap("two", "a: '1'"), apply...)
	k.contains("apply --applyset", set.pipe(configMap("one", "a: '1'"), apply...), "configmap/two pruned")
	k.equal("configmap/bystander\nconfigmap/kept\nconfigmap/kube-root-ca.crt\nconfigmap/one", "get", "configmap", "-o", "name")
}

func TestKubectlRollout(t *testing.T) {
	t.Parallel()
	k := shared(t).kubectl(t)
	image := func(want string) {
		t.Helper()
		k.run("rollout", "status", "deployment/web", patiently)
		k.equal(want, "get", "deployment", "web", "-o", "jsonpath={.spec.template.spec.containers[0].image}")
	}
	// The controller copies the cause to the revision that is the present one when it looks.
	caused := func(causes ...string) {
		t.Helper()
		k.run("annotate", "--overwrite", "deployment", "web", "kubernetes.io/change-cause="+causes[len(causes)-1])
		var want []string
		for i, cause := range causes {
			want = append(want, fmt.Sprintf("%d         %s", i+1, cause))
		}
		pollKubectl(k, want, "rollout", "history", "deployment/web")
	}
	k.run("create", "deployment", "web", "--image=web:1", "--replicas=2")
	caused("first")
	image("web:1")
	k.run("set", "image", "deployment/web", "web=web:2")
	caused("first", "second")
	image("web:2")
	k.contains("revision 1", k.run("rollout", "history", "deployment/web", "--revision=1"), "web:1")
	k.equal("deployment.apps/web rolled back", "rollout", "undo", "deployment/web")
	image("web:1")
	k.equal("deployment.apps/web restarted", "rollout", "restart", "deployment/web")
	image("web:1")
	pollKubectl(k, []string{"2 desired", "2 available", "ScalingReplicaSet"}, "describe", "deployment", "web")
}

func TestKubectlSubresources(t *testing.T) {
	t.Parallel()
	s := shared(t)
	k := s.kubectl(t)
	k.run("create", "deployment", "web", "--image=web:1", "--replicas=1")
	k.equal("Scale 1", "get", "deployment", "web", "--subresource=scale", "-o", "jsonpath={.kind} {.spec.replicas}")
	k.run("patch", "deployment", "web", "--subresource=scale", "--type=merge", "-p", `{"spec":{"replicas":2}}`)
	k.run("scale", "deployment", "web", "--current-replicas=2", "--replicas=3")
	k.equal("3", "get", "deployment", "web", "-o", "jsonpath={.spec.replicas}")
	k.run("wait", "--for=jsonpath={.status.readyReplicas}=3", "deployment/web", patiently)

	kind := createKind(k, "Gauge", "gauges")
	k.pipe(kind.object("g", 1), "apply", "-f", "-")
	k.run("patch", kind.resource, "g", "--subresource=status", "--type=merge", "-p", `{"spec":{"size":9},"status":{"size":5}}`)
	k.equal("1 5", "get", kind.resource, "g", "-o", "jsonpath={.spec.size} {.status.size}")
	k.run("patch", kind.resource, "g", "--type=merge", "-p", `{"status":{"size":7}}`) // not through the object itself
	k.equal("5", "get", kind.resource, "g", "--subresource=status", "-o", "jsonpath={.status.size}")
	k.run("scale", kind.resource, "g", "--replicas=4")
	k.equal("4", "get", kind.resource, "g", "-o", "jsonpath={.spec.size}")
}

func TestKubectlVersion(t *testing.T) {
	t.Parallel()
	k := shared(t).kubectlAs(t, "admin")
	var versions struct {
		ClientVersion, ServerVersion struct{ Major, Minor, GitVersion, Platform string }
	}
	out, stderr, code := k.try("", "version", "-o", "json")
	if err := json.Unmarshal([]byte(out), &versions); err != nil || code != 0 || stderr != "" {
		t.Fatalf("version: exit code %d, %v\n%s%s", code, err, out, stderr)
	}
	if versions.ServerVersion != versions.ClientVersion {
		t.Errorf("the server says %v, kubectl of the same release %v", versions.ServerVersion, versions.ClientVersion)
	}
}

func TestKubectlRaw(t *testing.T) {
	t.Parallel()
	k := shared(t).kubectl(t)
	k.equal("ok", "get", "--raw", "/healthz")
	k.contains("/readyz?verbose", k.run("get", "--raw", "/readyz?verbose"), "[+]ping ok", "[+]core/etcd ok", "readyz check passed")
	k.contains("/openapi/v3", k.run("get", "--raw", "/openapi/v3"), "apis/apps/v1", "apis/apiextensions.k8s.io/v1", "apis/apiregistration.k8s.io/v1")
	path := "/api/v1/namespaces/" + k.namespace + "/configmaps"
	file := k.file(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"raw"}}`)
	k.contains("create --raw", k.run("create", "--raw", path, "-f", file), `"name":"raw"`)
	k.contains("get --raw", k.run("get", "--raw", path+"/raw"), `"kind":"ConfigMap"`, `"name":"raw"`)
	k.contains("delete --raw", k.run("delete", "--raw", path+"/raw"), `"status":"Success"`)
	k.fail("", []string{"get", "--raw", path + "/raw"}, `configmaps "raw" not found`)
	k.fail("", []string{"get", "--raw", "/apis/no.such.group/v1"}, "the server could not find the requested resource")
}
