package kube

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	openapinamer "k8s.io/apiserver/pkg/endpoints/openapi"
	genericrest "k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/util/compatibility"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kube-aggregator/pkg/generated/openapi"

	"github.com/catena-dev/catena/sdk"
	"github.com/catena-dev/catena/sdk/apiserver"
	"github.com/catena-dev/catena/sdk/stagev1"
)

var gadgets = schema.GroupVersion{Group: "gadgets.test", Version: "v1"}

// gadget is a resource of which there is one object, of a type that has nothing
// but metadata.
type gadget struct{}

func (gadget) New() runtime.Object     { return &metav1.PartialObjectMetadata{} }
func (gadget) Destroy()                {}
func (gadget) NamespaceScoped() bool   { return false }
func (gadget) GetSingularName() string { return "gadget" }
func (gadget) Get(_ context.Context, name string, _ *metav1.GetOptions) (runtime.Object, error) {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"made": "here"}}}, nil
}

var _ genericrest.Getter = gadget{}

// gadgetStage is a third-party stage: an API server with a
// group of its own and without any of Kubernetes' packages for the control plane.
var gadgetStage = sdk.Stage{Name: "gadgets", New: func(env *sdk.Env) (http.Handler, error) {
	adapter, err := apiserver.New(env)
	if err != nil {
		return nil, err
	}
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	metav1.AddToGroupVersion(scheme, gadgets)
	scheme.AddKnownTypeWithName(gadgets.WithKind("Gadget"), &metav1.PartialObjectMetadata{})
	if err := scheme.SetVersionPriority(gadgets); err != nil {
		return nil, err
	}
	codecs := serializer.NewCodecFactory(scheme)
	config := genericapiserver.NewConfig(codecs)
	config.EffectiveVersion = compatibility.DefaultBuildEffectiveVersion()
	namer := openapinamer.NewDefinitionNamer(scheme)
	config.OpenAPIConfig = genericapiserver.DefaultOpenAPIConfig(openapi.GetOpenAPIDefinitions, namer)
	config.OpenAPIV3Config = genericapiserver.DefaultOpenAPIV3Config(openapi.GetOpenAPIDefinitions, namer)
	adapter.Configure(config)
	server, err := config.Complete(nil).New("gadgets", adapter.Delegate())
	if err != nil {
		return nil, err
	}
	group := genericapiserver.NewDefaultAPIGroupInfo(gadgets.Group, scheme, runtime.NewParameterCodec(scheme), codecs)
	group.VersionedResourcesStorageMap[gadgets.Version] = map[string]genericrest.Storage{"gadgets": gadget{}}
	if err := server.InstallAPIGroup(&group); err != nil {
		return nil, err
	}
	return adapter.Serve(apiserver.Server{GenericAPIServer: server})
}}

// TestOtherAPIServerInTheChain is about a group that Kubernetes does not know,
// from a stage between the others.
func TestOtherAPIServerInTheChain(t *testing.T) {
	c := startChain(t, flags(t, withoutCore), aggregatorStage, gadgetStage, extensionsStage)
	client := kubernetes.NewForConfigOrDie(c.client(t)).Discovery()
	get := func(path string) (string, error) {
		body, err := client.RESTClient().Get().AbsPath(path).SetHeader("Accept", "application/json").DoRaw(t.Context())
		return string(body), err
	}
	if body, err := get("/apis/gadgets.test/v1/gadgets/mine"); err != nil || !strings.Contains(body, `"made":"here"`) {
		t.Errorf("gadget is %s (%v)", body, err)
	}
	for _, path := range []string{"/apis", "/apis/gadgets.test", "/openapi/v2", "/openapi/v3", "/openapi/v3/apis/gadgets.test/v1", "/apis/apiregistration.k8s.io/v1/apiservices/v1.gadgets.test"} {
		eventually(t, "the group is known at "+path, func() error {
			body, err := get(path)
			if err == nil && !strings.Contains(body, gadgets.Group) {
				err = fmt.Errorf("response is %.200s", body)
			}
			return err
		})
	}
	eventually(t, "aggregated discovery", func() error {
		groups, _, err := client.ServerGroupsAndResources()
		var names []string
		for _, group := range groups {
			names = append(names, group.Name)
		}
		// Its place is after Kubernetes' own groups.
		if want := []string{"apiregistration.k8s.io", "apiextensions.k8s.io", gadgets.Group}; err == nil && !slices.Equal(names, want) {
			err = fmt.Errorf("groups are %q, want %q", names, want)
		}
		return err
	})
}

// TestMergedByFirstStage is about a chain without the aggregator: the first stage merges the documents, and gives a stage that
// asks it alone its own.
func TestMergedByFirstStage(t *testing.T) {
	c := startChain(t, flags(t, withoutCore), extensionsStage, gadgetStage)
	for _, path := range []string{"/apis", "/openapi/v2", "/openapi/v3"} {
		eventually(t, "documents at "+path, func() error {
			for delegate, want := range map[string]bool{"": true, "extensions": false} {
				r := httptest.NewRequest(http.MethodGet, path, nil)
				r.Header.Set("Accept", "application/json")
				if delegate != "" {
					r.Header.Set(stagev1.HeaderDelegate, delegate)
				}
				w := httptest.NewRecorder()
				c.after(-1).ServeHTTP(w, r)
				body := w.Body.String()
				if w.Code != http.StatusOK || !strings.Contains(body, "apiextensions.k8s.io") || strings.Contains(body, gadgets.Group) != want {
					return fmt.Errorf("asked as %q: %d %.200s", delegate, w.Code, body)
				}
			}
			return nil
		})
	}
	client := kubernetes.NewForConfigOrDie(c.client(t)).Discovery()
	groups, resources, err := client.ServerGroupsAndResources()
	if err != nil || len(groups) != 2 || !slices.ContainsFunc(resources, func(l *metav1.APIResourceList) bool { return l.GroupVersion == gadgets.String() }) {
		t.Errorf("discovery has %v, %v (%v)", groups, resources, err)
	}
	if body, err := client.RESTClient().Get().AbsPath("/openapi/v3/apis/gadgets.test/v1").DoRaw(t.Context()); err != nil || !strings.Contains(string(body), "Gadget") {
		t.Errorf("the document is %.200s (%v)", body, err)
	}
}
