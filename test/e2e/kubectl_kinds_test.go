package e2e

import (
	"fmt"
	"strings"
	"testing"
)

// customKind is a kind that a CustomResourceDefinition adds, with a status and a scale.
type customKind struct {
	group, kind string
	category    string // what "kubectl get" takes for all kinds of the test
	resource    string // with the group
}

// createKind creates the definition, which goes with the test. Each test has a group of
// its own: definitions are not in a namespace.
func createKind(k *kubectl, kind, plural string) customKind {
	k.t.Helper()
	c := customKind{group: k.namespace + ".example.com", category: k.namespace, kind: kind}
	c.resource = plural + "." + c.group
	k.pipe(strings.NewReplacer("GROUP", c.group, "CATEGORY", c.category, "KIND", kind, "PLURAL", plural, "SINGULAR", strings.ToLower(kind)).Replace(definition),
		"create", "-f", "-")
	k.t.Cleanup(func() {
		if _, stderr, code := k.afterTest("delete", "crd", c.resource, "--wait=false"); code != 0 {
			k.t.Error(stderr)
		}
	})
	// Discovery has it once it is established: "kubectl wait" fails if a definition has no conditions yet.
	// kubectl looks for a kind that it does not know once more, and not twice.
	pollKubectl(k, []string{c.resource}, "api-resources", "-o", "name", "--api-group="+c.group, "--cached=false")
	return c
}

func (c customKind) object(name string, size int) string {
	return fmt.Sprintf("apiVersion: %s/v1\nkind: %s\nmetadata: {name: %s}\nspec: {size: %d}\n", c.group, c.kind, name, size)
}

const definition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: PLURAL.GROUP}
spec:
  group: GROUP
  scope: Namespaced
  names: {kind: KIND, plural: PLURAL, singular: SINGULAR, categories: [CATEGORY]}
  versions:
  - name: v1
    served: true
    storage: true
    additionalPrinterColumns:
    - {name: Size, type: integer, jsonPath: .spec.size}
    subresources:
      status: {}
      scale: {specReplicasPath: .spec.size, statusReplicasPath: .status.size}
    schema:
      openAPIV3Schema:
        type: object
        description: A KIND measures.
        properties:
          spec:
            type: object
            properties:
              size: {type: integer, maximum: 10, description: How large it is.}
              color: {type: string, default: red}
            x-kubernetes-validations:
            - {rule: "self.color != 'black'", message: black is not a color}
          status:
            type: object
            properties:
              size: {type: integer}
`

func TestKubectlCustomResources(t *testing.T) {
	t.Parallel()
	k := shared(t).kubectl(t)
	kind := createKind(k, "Widget", "widgets")
	if got, want := k.pipe(kind.object("w", 3), "apply", "-f", "-"), "widget."+kind.group+"/w created"; got != want {
		t.Errorf("apply prints %q, want %q", got, want)
	}
	k.equal("3 red", "get", "widgets", "w", "-o", "jsonpath={.spec.size} {.spec.color}")
	if got := strings.Fields(k.run("get", "widgets", "--no-headers")); len(got) != 2 || got[0] != "w" || got[1] != "3" {
		t.Errorf("get prints %q, want the columns w and 3", got)
	}
	k.equal("widget."+kind.group+"/w", "get", kind.category, "-o", "name")
	k.pipe(kind.object("w", 4), "apply", "--server-side", "--force-conflicts", "-f", "-")
	k.equal("4", "get", "widget", "w", "-o", "jsonpath={.spec.size}")

	k.fail(kind.object("x", 11), []string{"apply", "-f", "-"}, `Widget "x" is invalid`, "spec.size in body should be less than or equal to 10")
	k.fail(strings.Replace(kind.object("x", 1), "size: 1", "color: black", 1), []string{"apply", "-f", "-"}, "black is not a color")
	k.fail(strings.Replace(kind.object("x", 1), "size: 1", "sice: 1", 1), []string{"apply", "-f", "-"}, `unknown field "spec.sice"`)
}

func TestKubectlExplain(t *testing.T) {
	t.Parallel()
	k := shared(t).kubectl(t)
	k.contains("explain", k.run("explain", "deployments.spec.replicas"),
		"GROUP:      apps", "FIELD: replicas <integer>", "Number of desired pods")
	k.contains("explain --recursive", k.run("explain", "pods.spec.containers.ports", "--recursive"), "containerPort", "hostIP")
	k.contains("explain of OpenAPI v2", k.run("explain", "services.spec.type", "--output=plaintext-openapiv2"), "ExternalName")

	kind := createKind(k, "Gadget", "gadgets")
	eventually := func(want []string, args ...string) {
		t.Helper()
		pollKubectl(k, want, args...)
	}
	eventually([]string{"KIND:       Gadget", "FIELD: size <integer>", "How large it is."}, "explain", "gadgets.spec.size")
	eventually([]string{"A Gadget measures.", "spec\t<Object>"}, "explain", kind.resource)
	eventually([]string{"KIND:     Gadget", "How large it is."}, "explain", "gadgets.spec.size", "--output=plaintext-openapiv2")
}

func TestKubectlDiscovery(t *testing.T) {
	t.Parallel()
	k := shared(t).kubectl(t)
	kind := createKind(k, "Lever", "levers")
	// One line of each stage, and all the columns of the built-in ones.
	lines := map[string]bool{}
	for line := range strings.Lines(k.run("api-resources", "--no-headers")) {
		lines[strings.Join(strings.Fields(line), " ")] = true
	}
	for _, want := range []string{
		"pods po v1 true Pod",
		"deployments deploy apps/v1 true Deployment",
		"namespaces ns v1 false Namespace",
		"customresourcedefinitions crd,crds apiextensions.k8s.io/v1 false CustomResourceDefinition",
		"apiservices apiregistration.k8s.io/v1 false APIService",
		"levers " + kind.group + "/v1 true Lever",
	} {
		if !lines[want] {
			t.Errorf("api-resources has no line %q", want)
		}
	}
	k.contains("api-versions", k.run("api-versions"), "apps/v1\n", "\nv1", "apiregistration.k8s.io/v1\n", kind.group+"/v1\n")
	k.contains("the legacy /apis", k.run("get", "--raw", "/apis"), `"kind":"APIGroupList"`, `"name":"`+kind.group+`"`, `"name":"apps"`)
	k.contains("the group", k.run("get", "--raw", "/apis/"+kind.group+"/v1"), `"kind":"APIResourceList"`, `"name":"levers/status"`)
}

// pollKubectl runs a command until its output has all of the texts.
func pollKubectl(k *kubectl, wants []string, args ...string) {
	k.t.Helper()
	eventuallyPrints(k, func(out string) bool {
		for _, want := range wants {
			if !strings.Contains(out, want) {
				return false
			}
		}
		return true
	}, args...)
}
