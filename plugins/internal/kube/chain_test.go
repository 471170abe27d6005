package kube

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorclient "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"

	"github.com/catena-dev/catena/sdk"
)

var (
	aggregatorStage = sdk.Stage{Name: "aggregator", New: NewAggregator}
	coreStage       = sdk.Stage{Name: "core", New: func(env *sdk.Env) (http.Handler, error) { return newCore(env, newEarlyHooks()) }}
	extensionsStage = sdk.Stage{Name: "extensions", New: NewExtensions}
)

// groupsInOrder is the order in which kube-apiserver 1.37 lists its groups.
var groupsInOrder = []string{
	"", "apiregistration.k8s.io", "apps", "events.k8s.io", "authentication.k8s.io", "authorization.k8s.io",
	"autoscaling", "batch", "certificates.k8s.io", "networking.k8s.io", "policy", "rbac.authorization.k8s.io",
	"storage.k8s.io", "admissionregistration.k8s.io", "apiextensions.k8s.io", "scheduling.k8s.io",
	"coordination.k8s.io", "node.k8s.io", "discovery.k8s.io", "resource.k8s.io", "flowcontrol.apiserver.k8s.io",
	"storagemigration.k8s.io",
}

func TestChain(t *testing.T) {
	c := startChain(t, flags(t), aggregatorStage, coreStage, extensionsStage)
	config := c.client(t)
	eventually(t, "all checks pass", func() error { return c.healthy(t.Context()) })

	t.Run("core makes its namespaces", func(t *testing.T) { testNamespaces(t, config) })
	t.Run("discovery has the groups of all stages in order", func(t *testing.T) { testGroups(t, config) })
	t.Run("a request has one hop", func(t *testing.T) { testOneHop(t, c) })
	t.Run("custom resources appear and go", func(t *testing.T) { testCustomResource(t, config) })
	t.Run("an APIService takes its paths and gives them back", func(t *testing.T) { testAPIService(t, c, config) })
}

func testNamespaces(t *testing.T, config *rest.Config) {
	client := kubernetes.NewForConfigOrDie(config)
	eventually(t, "namespaces", func() error {
		for _, name := range []string{"default", "kube-system", "kube-public", "kube-node-lease"} {
			if _, err := client.CoreV1().Namespaces().Get(t.Context(), name, metav1.GetOptions{}); err != nil {
				return err
			}
		}
		return nil
	})
}

func testGroups(t *testing.T, config *rest.Config) {
	client := kubernetes.NewForConfigOrDie(config)
	aggregated, _, err := client.Discovery().ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, group := range aggregated {
		got = append(got, group.Name)
	}
	if !slices.Equal(got, groupsInOrder) {
		t.Errorf("aggregated discovery has %q\nwant %q", got, groupsInOrder)
	}
	list := &metav1.APIGroupList{}
	if err := client.RESTClient().Get().AbsPath("/apis").SetHeader("Accept", "application/json").Do(t.Context()).Into(list); err != nil {
		t.Fatal(err)
	}
	got = []string{""}
	for _, group := range list.Groups {
		got = append(got, group.Name)
	}
	if !slices.Equal(got, groupsInOrder) {
		t.Errorf("discovery has %q\nwant %q", got, groupsInOrder)
	}
}

func testOneHop(t *testing.T, c *chain) {
	for path, want := range map[string]string{
		"/api":                                   "core",
		"/api/v1":                                "core",
		"/api/v1/namespaces/default/pods/x/exec": "core",
		"/apis":                                  "aggregator",
		"/apis/":                                 "aggregator",
		"/apis/apps":                             "aggregator",
		"/apis/apps/v1":                          "core",
		"/apis/apps/v1/deployments":              "core",
		"/apis/apps/v7":                          "core",
		"/apis/apiregistration.k8s.io/v1/apiservices":            "aggregator",
		"/apis/apiextensions.k8s.io/v1/customresourcedefintions": "extensions",
		"/apis/example.test/v1/things":                           "extensions",
		"/openapi/v2":                                            "aggregator",
		"/openapi/v3/apis/apps/v1":                               "aggregator",
		"/.well-known/openid-configuration":                      "core",
		"/openid/v1/jwks":                                        "core",
		"/":                                                      "",
		"/healthz":                                               "",
		"/readyz/ping":                                           "",
		"/metrics":                                               "",
		"/version":                                               "",
		"/nothing":                                               "",
	} {
		eventually(t, path, func() error {
			if got := c.first(path); got != want {
				return fmt.Errorf("%s goes to %q, want %q", path, got, want)
			}
			return nil
		})
	}
}

// first returns the first stage that claims path.
func (c *chain) first(path string) string {
	for i, name := range []string{"aggregator", "core", "extensions"} {
		if c.links[i].covers(path) {
			return name
		}
	}
	return ""
}

var things = schema.GroupVersionResource{Group: "example.test", Version: "v1", Resource: "things"}

func thingsDefinition() *apiextensionsv1.CustomResourceDefinition {
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "things.example.test"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: things.Group, Scope: apiextensionsv1.ClusterScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "things", Singular: "thing", Kind: "Thing", ListKind: "ThingList"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: things.Version, Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"size": {Type: "integer"}},
				}},
			}},
		},
	}
}

func testCustomResource(t *testing.T, config *rest.Config) {
	crds := apiextensionsclient.NewForConfigOrDie(config).ApiextensionsV1().CustomResourceDefinitions()
	client := kubernetes.NewForConfigOrDie(config)
	resources := dynamic.NewForConfigOrDie(config).Resource(things)
	if _, err := crds.Create(t.Context(), thingsDefinition(), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	thing := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.test/v1", "kind": "Thing", "metadata": map[string]any{"name": "one"}, "size": int64(1),
	}}
	eventually(t, "custom resource is served", func() error {
		_, err := resources.Create(t.Context(), thing, metav1.CreateOptions{})
		return err
	})
	eventually(t, "group is in both discoveries and in OpenAPI", func() error { return discoverable(t.Context(), client, true) })
	if err := crds.Delete(t.Context(), "things.example.test", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "group is gone again", func() error { return discoverable(t.Context(), client, false) })
}

// discoverable returns an error unless the presence of things everywhere is want.
func discoverable(ctx context.Context, client kubernetes.Interface, want bool) error {
	has := map[string]bool{}
	groups, _, err := client.Discovery().ServerGroupsAndResources()
	if err != nil {
		return err
	}
	has["aggregated discovery"] = slices.ContainsFunc(groups, func(g *metav1.APIGroup) bool { return g.Name == things.Group })
	for what, path := range map[string]string{"discovery": "/apis", "OpenAPI v2": "/openapi/v2", "OpenAPI v3": "/openapi/v3"} {
		body, err := client.Discovery().RESTClient().Get().AbsPath(path).SetHeader("Accept", "application/json").DoRaw(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		has[what] = strings.Contains(string(body), things.Group)
	}
	_, err = client.Discovery().RESTClient().Get().AbsPath("/openapi/v3/apis/example.test/v1").DoRaw(ctx)
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	has["OpenAPI v3 of the group"] = err == nil
	_, err = client.Discovery().RESTClient().Get().AbsPath("/apis/example.test").DoRaw(ctx)
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	has["group discovery"] = err == nil
	for what, got := range has {
		if got != want {
			return fmt.Errorf("%s: presence of %s is %v, want %v", what, things.Group, got, want)
		}
	}
	return nil
}

func testAPIService(t *testing.T, c *chain, config *rest.Config) {
	services := aggregatorclient.NewForConfigOrDie(config).ApiregistrationV1().APIServices()
	const path = "/apis/remote.test/v1/things"
	if got := c.first(path); got != "extensions" {
		t.Fatalf("before, the path goes to %q", got)
	}
	_, err := services.Create(t.Context(), &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: "v1.remote.test"},
		Spec: apiregistrationv1.APIServiceSpec{
			Service: &apiregistrationv1.ServiceReference{Namespace: "default", Name: "remote"},
			Group:   "remote.test", Version: "v1", InsecureSkipTLSVerify: true,
			GroupPriorityMinimum: 1000, VersionPriority: 10,
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	reaches := func(stage string, answer func(error) bool) func() error {
		return func() error {
			_, err := kubernetes.NewForConfigOrDie(config).RESTClient().Get().AbsPath(path).DoRaw(t.Context())
			if got := c.first(path); got != stage || !answer(err) {
				return fmt.Errorf("path goes to %q, which answers %v", got, err)
			}
			return nil
		}
	}
	// There is no such service, so that the aggregator can only say so.
	eventually(t, "aggregator has the path", reaches("aggregator", apierrors.IsServiceUnavailable))
	if err := services.Delete(t.Context(), "v1.remote.test", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "aggregator gives the path back", reaches("extensions", apierrors.IsNotFound))
}

// withoutCore disables the admission plugins that wait for resources of core.
const withoutCore = "disable-admission-plugins=NamespaceLifecycle,LimitRanger,ServiceAccount,ResourceQuota," +
	"MutatingAdmissionPolicy,MutatingAdmissionWebhook,ValidatingAdmissionPolicy,ValidatingAdmissionWebhook"

// TestExtensionsAlone starts a chain that has none of Kubernetes' built-in resources.
func TestExtensionsAlone(t *testing.T) {
	c := startChain(t, flags(t, "enable-priority-and-fairness=false", withoutCore), extensionsStage)
	config := c.client(t)
	eventually(t, "all checks pass", func() error { return c.healthy(t.Context()) })
	crds := apiextensionsclient.NewForConfigOrDie(config).ApiextensionsV1().CustomResourceDefinitions()
	if _, err := crds.Create(t.Context(), thingsDefinition(), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	resources := dynamic.NewForConfigOrDie(config).Resource(things)
	eventually(t, "custom resources are served", func() error {
		_, err := resources.List(t.Context(), metav1.ListOptions{})
		return err
	})
	eventually(t, "custom resources are in discovery", func() error {
		_, lists, err := kubernetes.NewForConfigOrDie(config).Discovery().ServerGroupsAndResources()
		if !slices.ContainsFunc(lists, func(l *metav1.APIResourceList) bool { return l.GroupVersion == "example.test/v1" }) {
			return fmt.Errorf("discovery (%v) has %v", err, lists)
		}
		return nil
	})
}
