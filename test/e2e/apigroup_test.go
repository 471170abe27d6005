package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/catena-dev/catena/test/internal/cluster"
)

// groups is a Catena with API groups of third parties downstream of core: the examples wardle
// and notes, and fleet, which the test binary serves.
type groups struct{ *system }

func startGroups(t *testing.T) *groups {
	t.Helper()
	dir := t.TempDir()
	installExamples(t, dir, "wardle", "notes")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := copyFile(filepath.Join(dir, "catena-stage-fleet"), self); err != nil {
		t.Fatal(err)
	}
	c, err := cluster.StartCatena(t.Context(), cluster.Options{PluginDirs: []string{dir}, Set: []string{
		"stages.core.delegate=wardle", `stages.wardle={"lock":"off","delegate":"notes","grants":{"store":"own","network":true}}`,
		`stages.notes={"lock":"off","delegate":"fleet","grants":{"network":true}}`, `stages.fleet={"lock":"off","delegate":"extensions","grants":{"store":"own","network":true}}`,
	}})
	if err != nil {
		t.Fatal(err)
	}
	s := &system{Catena: c, config: c.Config(cluster.Admin), users: map[string]string{}}
	t.Cleanup(func() {
		if err := s.stop(t.Failed()); err != nil {
			t.Error(err)
		}
	})
	if err := s.makeClients(t.Context()); err != nil {
		t.Fatal(err)
	}
	return &groups{system: s}
}

func copyFile(to, from string) error {
	if os.Link(from, to) == nil {
		return nil
	}
	binary, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return cluster.WriteProgram(to, binary)
}

// As long as the operator has granted nothing, a stage says what it lacks; after that
// its kinds are as kubectl knows kinds.
func TestAPIGroups(t *testing.T) {
	t.Parallel()
	g := startGroups(t)
	k := g.kubectlAs(t, cluster.Admin)
	k.run("get", "serviceaccount", "default", "--ignore-not-found") // a namespace is there
	k.fail(flunder("early", "none"), []string{"create", "-f", "-"},
		`stage "wardle" cannot run admission: its user "system:catena:stage:wardle" may not get/list/watch namespaces`)
	g.grant(t, k)
	t.Run("discovery", func(t *testing.T) { groupDiscovery(t, k.in(t)) })
	t.Run("wardle", func(t *testing.T) { groupWardle(t, g, k.in(t)) })
	t.Run("notes", func(t *testing.T) { groupNotes(t, k.in(t)) })
	t.Run("fleet", func(t *testing.T) { groupFleet(t, g, k.in(t)) })
	t.Run("admission", func(t *testing.T) { groupAdmission(t, k.in(t)) })
	t.Run("webhooks", func(t *testing.T) { groupWebhooks(t, k.in(t)) })
	t.Run("rights of users", func(t *testing.T) { groupRights(t, g, k.in(t)) })
	t.Run("watches survive", func(t *testing.T) { groupWatches(t, g) })
}

// grant applies the rights from the example, for all three stages.
func (g *groups) grant(t *testing.T, k *kubectl) {
	t.Helper()
	k.run("apply", "-f", filepath.Join(cluster.Root(), "examples", "wardle", "rbac.yaml"))
	for _, stage := range []string{"notes", "fleet"} {
		k.run("create", "clusterrolebinding", stage, "--clusterrole=catena-api-group", "--user=system:catena:stage:"+stage)
	}
	for _, o := range []string{flunder("ready", "none"), note("ready", "x"), fleet("ready", 1)} {
		eventually(t, "the stages have their rights", func(context.Context) error {
			if stdout, stderr, code := k.try(o, "apply", "--dry-run=server", "-f", "-"); code != 0 {
				return fmt.Errorf("%s%s", stdout, stderr)
			}
			return nil
		})
	}
}

func note(name, text string) string {
	return fmt.Sprintf("apiVersion: notes.example.com/v1\nkind: Note\nmetadata: {name: %s, labels: {topic: test}}\nspec: {text: %q}\n", name, text)
}

func groupDiscovery(t *testing.T, k *kubectl) {
	k.contains("api-resources", k.run("api-resources", "--cached=false", "-o", "wide"),
		"wardle.example.com/v1beta1", "Flunder", "wardle.example.com/v1alpha1", "Fischer", "notes.example.com/v1", "fleets.test/v1")
	k.run("wait", "--for=condition=Available", "apiservice/v1alpha1.wardle.example.com", patiently)
	k.contains("explain", k.run("explain", "flunder.spec", "--api-version=wardle.example.com/v1alpha1"), "reference\t<string>", "A name of another flunder or fischer")
	k.contains("explain", k.run("explain", "note.spec"), "text\t<string> -required-", "Text is the note itself.")
	k.contains("OpenAPI v2", k.run("get", "--raw", "/openapi/v2"), "com.github.catena-dev.catena.examples.notes.v1.NoteSpec", "/apis/fleets.test/v1/namespaces/{namespace}/fleets/{name}/recall")
}

func groupWardle(t *testing.T, g *groups, k *kubectl) {
	k.pipe(flunder("one", "two"), "create", "-f", "-")
	out := k.run("get", "flunders")
	if fields := strings.Fields(out); len(fields) != 6 || fields[0] != "NAME" || fields[1] != "REFERENCE" || fields[2] != "AGE" || fields[4] != "two" {
		t.Errorf("kubectl get prints %q", out)
	}
	// Versions are converted: the reference has two fields in v1beta1.
	k.equal("two", "get", "flunders.v1beta1.wardle.example.com", "one", "-o", "jsonpath={.spec.flunderReference}")
	k.equal("two", "get", "flunders.v1alpha1.wardle.example.com", "one", "-o", "jsonpath={.spec.reference}")
	k.contains("apply", k.pipe(flunder("one", "three"), "apply", "--server-side", "--force-conflicts", "-f", "-"), "serverside-applied")
	k.equal("flunder.wardle.example.com/one", "get", "flunders", "-o", "name", "--field-selector", "spec.reference=three")
	k.run("label", "flunder", "one", "color=red")
	k.equal("flunder.wardle.example.com/one", "get", "flunders", "-o", "name", "-l", "color=red")
	k.fail("", []string{"get", "flunders", "--field-selector", "spec.color=red"}, `"spec.color" is not a known field selector`)
	k.setenv("KUBE_EDITOR=sed -i s/three/four/").run("edit", "flunder", "one")
	k.run("wait", "flunder/one", "--for=jsonpath={.spec.flunderReference}=four", patiently)
	k.run("delete", "flunder", "one", "--dry-run=server")
	k.run("delete", "flunder", "one")
	k.pipe("apiVersion: wardle.example.com/v1alpha1\nkind: Fischer\nmetadata: {name: strict}\ndisallowedFlunders: [banned]\n", "create", "-f", "-")
	eventually(t, "the admission plugin has seen the fischer", func(context.Context) error {
		if _, stderr, _ := k.try(flunder("banned", "x"), "create", "--dry-run=server", "-f", "-"); !strings.Contains(stderr, "this name may not be used") {
			return fmt.Errorf("error is %q", stderr)
		}
		return nil
	})
}

func groupNotes(t *testing.T, k *kubectl) {
	k.pipe(note("shopping", "bread\nbutter"), "apply", "-f", "-")
	k.contains("apply", k.pipe(note("shopping", "bread\nbutter"), "apply", "-f", "-"), "unchanged")
	k.equal("bread", "get", "note", "shopping", "-o", "jsonpath={.spec.title}")
	k.equal("bread\nbutter", "get", "--raw", "/apis/notes.example.com/v1/namespaces/default/notes/shopping/text")
	k.equal("note.notes.example.com/shopping", "get", "notes", "-o", "name", "-l", "topic=test", "--field-selector", "spec.title=bread")
	k.fail(note("empty", ""), []string{"create", "-f", "-"}, "spec.text: Required value")
	k.pipe("apiVersion: notes.example.com/v1\nkind: Note\nmetadata: {name: shopping}\nspec: {tags: [food]}\n", "apply", "--server-side", "--field-manager=tagger", "-f", "-")
	k.equal(`["food"] bread`, "get", "note", "shopping", "-o", "jsonpath={.spec.tags} {.spec.title}")
	k.run("patch", "note", "shopping", "--type=json", "-p", `[{"op":"add","path":"/metadata/finalizers","value":["test/wait"]}]`)
	k.run("delete", "note", "shopping", "--wait=false")
	k.contains("a note with a finalizer", k.run("get", "note", "shopping", "-o", "yaml"), "deletionTimestamp")
	k.run("patch", "note", "shopping", "--type=json", "-p", `[{"op":"remove","path":"/metadata/finalizers"}]`)
	k.run("wait", "note/shopping", "--for=delete", patiently)
}

// groupAdmission runs Kubernetes' own admission over the kinds of a stage.
func groupAdmission(t *testing.T, k *kubectl) {
	elsewhere := *k
	elsewhere.namespace = "nowhere"
	elsewhere.fail(note("lost", "x"), []string{"create", "-f", "-"}, `namespaces "nowhere" not found`)
	k.pipe(notePolicy, "apply", "-f", "-")
	eventually(t, "the policy is in force", func(context.Context) error {
		if _, stderr, _ := k.try(note("secret", "a secret"), "create", "--dry-run=server", "-f", "-"); !strings.Contains(stderr, "notes are no place for secrets") {
			return fmt.Errorf("error is %q", stderr)
		}
		return nil
	})
	k.run("delete", "validatingadmissionpolicy,validatingadmissionpolicybinding", "no-secrets")
}

// groupWebhooks calls one webhook by a service and one by its URL.
func groupWebhooks(t *testing.T, k *kubectl) {
	k.run("create", "namespace", "hooked")
	in := *k
	in.namespace = "hooked"
	h := startWebhooks(t, "hooked")
	in.pipe(strings.NewReplacer("NAMESPACE", "hooked", "meters", "notes", "MUTATE", h.client("hooked", "mutate", true),
		"VALIDATE", h.client("hooked", "validate", false)).Replace(webhookObjects), "create", "-f", "-")
	awaitWebhooks(&in, func(name string) string { return note(name, "x") })
	if _, stderr, code := in.try(note("good", "x"), "create", "-f", "-"); code != 0 || stderr != "Warning: this is watched\n" {
		t.Errorf("create: exit code %d, %q", code, stderr)
	}
	in.equal("admin", "get", "note", "good", "-o", "jsonpath={.metadata.annotations.made-by}")
	in.run("delete", "namespace", "hooked", "--wait=false")
}

const notePolicy = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: no-secrets}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [notes.example.com], apiVersions: ["*"], resources: [notes], operations: [CREATE, UPDATE]}]}
  validations: [{expression: "!object.spec.text.contains('secret')", message: notes are no place for secrets}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: no-secrets}
spec: {policyName: no-secrets, validationActions: [Deny]}
`

// groupRights is about users of the kinds, who have roles as for any kind.
func groupRights(t *testing.T, g *groups, k *kubectl) {
	bob := g.kubectlAs(t, cluster.Bob)
	bob.fail("", []string{"get", "notes"}, `User "bob" cannot list resource "notes" in API group "notes.example.com"`)
	k.run("create", "role", "notes", "--verb=get,list,patch", "--resource=notes.notes.example.com")
	k.run("create", "rolebinding", "notes", "--role=notes", "--user=bob")
	eventuallyPrints(bob, func(out string) bool { return !strings.Contains(out, "forbidden") }, "get", "notes")
	bob.run("get", "notes")
	// An apply that creates needs the right to create: the stage asks for it.
	bob.fail(note("bobs", "x"), []string{"apply", "--server-side", "-f", "-"}, `User "bob" cannot create resource "notes"`)
}
