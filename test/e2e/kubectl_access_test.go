package e2e

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/catena-dev/catena/test/internal/cluster"
)

// whoami is what the server takes the caller for, the groups sorted.
func (k *kubectl) whoami(args ...string) (username string, groups []string) {
	k.t.Helper()
	var review struct {
		Status struct {
			UserInfo struct {
				Username string
				Groups   []string
			}
		}
	}
	out := k.run(append([]string{"auth", "whoami", "-o", "json"}, args...)...)
	if err := json.Unmarshal([]byte(out), &review); err != nil {
		k.t.Fatal(err)
	}
	slices.Sort(review.Status.UserInfo.Groups)
	return review.Status.UserInfo.Username, review.Status.UserInfo.Groups
}

func (k *kubectl) isWho(user string, groups []string, args ...string) {
	k.t.Helper()
	if gotUser, gotGroups := k.whoami(args...); gotUser != user || !slices.Equal(gotGroups, groups) {
		k.t.Errorf("whoami %q: %q %q, want %q %q", args, gotUser, gotGroups, user, groups)
	}
}

func TestKubectlWhoAmI(t *testing.T) {
	t.Parallel()
	s := shared(t)
	s.kubectlAs(t, cluster.Alice).isWho("alice", []string{"devs", "system:authenticated"})
	jane, err := s.certificate("jane, née Doe", "developers", "weiß/blau")
	if err != nil {
		t.Fatal(err)
	}
	newKubectl(t, jane).isWho("jane, née Doe", []string{"developers", "system:authenticated", "weiß/blau"})
	newKubectl(t, s.AdminKubeconfig()).run("auth", "can-i", "*", "*")
	s.kubectlAs(t, cluster.Admin).isWho("ghost", []string{"shadows", "system:authenticated"}, "--as=ghost", "--as-group=shadows")
}

func TestKubectlCanI(t *testing.T) {
	t.Parallel()
	s := shared(t)
	k := s.kubectl(t)
	bob := k.with(s.kubectlAs(t, cluster.Bob).config)
	k.equal("yes", "auth", "can-i", "create", "deployments.apps")
	if out, _, code := bob.try("", "auth", "can-i", "list", "configmaps"); code != 1 || out != "no\n" {
		t.Errorf("bob can list without a role: exit code %d and %q, want 1 and no", code, out)
	}
	bob.fail("", []string{"get", "configmaps"}, "Error from server (Forbidden)", `User "bob" cannot list resource "configmaps"`)
	k.run("create", "role", "reader", "--verb=list,get", "--resource=configmaps")
	k.run("create", "rolebinding", "reader", "--role=reader", "--user=bob")
	// Core serves reviews, and the front authorizes: each has to see the role.
	eventuallyPrints(bob, func(out string) bool { return out == "yes\n" }, "auth", "can-i", "list", "configmaps")
	eventuallyPrints(bob, func(out string) bool { return !strings.Contains(out, "Forbidden") }, "get", "configmaps")
	bob.run("get", "configmaps")
	bob.fail("", []string{"create", "configmap", "c"}, `cannot create resource "configmaps"`)
	k.contains("can-i --list", bob.run("auth", "can-i", "--list"), "configmaps", "[list get]", "selfsubjectreviews.authentication.k8s.io")
	// Rights that one has not cannot be given away, nor identities taken.
	k.run("create", "role", "binder", "--verb=create", "--resource=roles")
	k.run("create", "rolebinding", "binder", "--role=binder", "--user=bob")
	eventuallyPrints(bob, func(out string) bool { return out == "yes\n" }, "auth", "can-i", "create", "roles")
	greedy := []string{"create", "role", "greedy", "--verb=delete", "--resource=pods"}
	eventuallyPrints(bob, func(out string) bool { return !strings.Contains(out, `cannot create resource "roles"`) }, greedy...)
	bob.fail("", greedy, "attempting to grant RBAC permissions not currently held")
	bob.fail("", []string{"get", "configmaps", "--as=admin"}, `User "bob" cannot impersonate`)
}

func TestKubectlErrors(t *testing.T) {
	t.Parallel()
	s := shared(t)
	k := s.kubectl(t)
	k.fail("", []string{"get", "configmap", "none"}, `Error from server (NotFound): configmaps "none" not found`)
	k.fail("", []string{"get", "nonsenses"}, `the server doesn't have a resource type "nonsenses"`)
	k.fail(strings.Replace(configMap("c", ""), "v1", "none.example.com/v1", 1), []string{"create", "-f", "-"}, "no matches for kind")
	k.fail(configMap("BAD", ""), []string{"create", "-f", "-"}, `The ConfigMap "BAD" is invalid: metadata.name: Invalid value: "BAD"`)
	k.fail("apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\nspec: {}\n", []string{"create", "-f", "-"},
		`The Deployment "d" is invalid`, "spec.selector: Required value", "spec.template.spec.containers: Required value")
	k.fail(strings.Replace(configMap("c", ""), "\ndata", "\ndada", 1), []string{"create", "-f", "-"}, "strict decoding error", `unknown field "dada"`)
	k.run("create", "configmap", "c")
	k.fail("", []string{"create", "configmap", "c"}, `configmaps "c" already exists`)
	stale := strings.Replace(configMap("c", "a: '1'"), "name: c", "name: c, resourceVersion: '1'", 1)
	k.fail(stale, []string{"replace", "-f", "-"}, "Error from server (Conflict)", `Operation cannot be fulfilled on configmaps "c"`)
	k.fail("", []string{"patch", "configmap", "c", "--type=json", "-p", `[{"op":"test","path":"/data/a","value":"2"}]`}, "the server rejected our request")
	k.fail("", []string{"scale", "deployment", "none", "--replicas=1"}, `"none" not found`)
	k.fail("", []string{"top", "pods"}, "Metrics API not available")
	k.fail("", []string{"create", "configmap", "c", "-n", "nowhere"}, `namespaces "nowhere" not found`)
	s.withToken(k, "wrong").fail("", []string{"get", "pods"}, "You must be logged in to the server")
}
