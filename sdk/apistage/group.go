package apistage

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"
	"k8s.io/kube-openapi/pkg/common"

	"github.com/catena-dev/catena/sdk"
	"github.com/catena-dev/catena/sdk/apiserver"
)

// Group is an API group as a stage. Name, APIVersion and Resources are required.
//
//	func main() {
//		sdk.Main(apistage.Group{
//			Name:       "notes",
//			APIVersion: "notes.example.com/v1",
//			Resources:  []apistage.Resource{apistage.Kind[*notes.Note]{List: &notes.NoteList{}}},
//		}.Stage())
//	}
//
// Stage makes a server of it that has all that a group of Kubernetes has: discovery,
// OpenAPI, watch, tables, server-side apply, admission. docs/apistage.md says which
// rights the operator has to grant the stage for that.
type Group struct {
	// Name is the NAME of the binary, catena-stage-NAME.
	Name string
	// Summary is one line that says what the stage does.
	Summary string
	// APIVersion is the group and the version in which objects are stored, as it is
	// in manifests: notes.example.com/v1.
	APIVersion string
	// AddToScheme registers the types of all versions with their conversions and
	// defaults, as packages of Kubernetes' types do. If a kind has no type of the
	// internal version, the type in Resources is taken for it. Without AddToScheme,
	// the types in Resources are those of APIVersion.
	AddToScheme func(*runtime.Scheme) error
	// Types are further types of APIVersion, such as those that an Action takes.
	Types []runtime.Object
	// Resources are what the group serves.
	Resources []Resource
	// TypeSources is the Go source of the types, for instance of go:embed. Comments
	// become the descriptions that kubectl explain shows; markers such as
	// +listType=map say how server-side apply merges.
	TypeSources []string
	// Definitions are OpenAPI definitions that openapi-gen has made. For types that
	// it lacks, and without it for all types, they are made by reflection.
	Definitions common.GetOpenAPIDefinitions
	// Admission returns plugins that run after those of Kubernetes.
	Admission func(*Setup) ([]admission.Interface, error)
	// Start runs in the background once the server serves, in the process that leads: in one of those that a swap has
	// beside each other, and on one of the hosts that share a store, as with sdk.Env.Lead by the name start. Its
	// context ends when the stage drains, and another process begins when it has returned. An error, and an end before
	// that, are logged.
	Start func(context.Context, *Setup) error
	// StartEverywhere is like Start, but runs in each process, until the stage stops: for what fills a cache, and not
	// for a worker.
	StartEverywhere func(context.Context, *Setup) error
}

// Setup is what functions of a group get to work with.
type Setup struct {
	Env    *sdk.Env
	Scheme *runtime.Scheme
	// GroupVersion is that of Group.APIVersion.
	GroupVersion schema.GroupVersion
	// Loopback is the configuration of clients of the server, with the identity that
	// the operator has given the stage.
	Loopback *restclient.Config
	// Client and Informers use Loopback. Informers start when the stage has the rights
	// that it needs; what asks for one later has to start it.
	Client    kubernetes.Interface
	Informers informers.SharedInformerFactory
	// Config is that of the server. It is complete enough to get RESTOptions from.
	Config *genericapiserver.Config
}

// RESTClient returns a client for the objects of the group, with the types of Scheme. Unlike Loopback, which is for
// Kubernetes' own types, it asks for JSON.
func (s *Setup) RESTClient() (restclient.Interface, error) {
	config := restclient.CopyConfig(s.Loopback)
	config.APIPath, config.GroupVersion = "/apis", &s.GroupVersion
	config.AcceptContentTypes, config.ContentType = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	config.NegotiatedSerializer = serializer.NewCodecFactory(s.Scheme).WithoutConversion()
	return restclient.RESTClientFor(config)
}

// versions are those of the group in which a kind is known.
func (s *Setup) versions(kind string) []schema.GroupVersion {
	return (&groupScheme{Scheme: s.Scheme, stored: s.GroupVersion}).versionsOf(kind)
}

// Resource is a Kind or a Custom.
type Resource interface {
	// register adds to the scheme what the resource needs.
	register(scheme *groupScheme) error
	// storage returns the storages by their paths: notes, notes/status.
	storage(setup *Setup) (map[string]rest.Storage, error)
	// usesStore reports whether the objects are in Catena's store.
	usesStore() bool
}

// Stage returns the stage. Its fields can be changed, for instance to give it a schema
// for its configuration. It needs the network, for admission webhooks, and keys of its own in
// the store unless all resources have storage of their own.
func (g Group) Stage() sdk.Stage {
	group, _, _ := strings.Cut(g.APIVersion, "/")
	needs := &sdk.Needs{Claims: []sdk.Claim{sdk.Prefix("/apis/" + group)}, Flags: groupFlagNames(), Network: true}
	for _, r := range g.Resources {
		if r.usesStore() {
			needs.Store = sdk.StoreOwn
		}
	}
	return sdk.Stage{Name: g.Name, Summary: g.Summary, Needs: needs, New: g.build}
}

func (g Group) build(env *sdk.Env) (http.Handler, error) {
	handler, err := g.server(env)
	if err != nil {
		return nil, fmt.Errorf("API group %q: %w", g.APIVersion, err)
	}
	return handler, nil
}

// server mirrors what a program with genericapiserver does, step by step.
func (g Group) server(env *sdk.Env) (http.Handler, error) {
	scheme, err := g.newScheme()
	if err != nil {
		return nil, fmt.Errorf("scheme: %w", err)
	}
	adapter, err := apiserver.New(env)
	if err != nil {
		return nil, err
	}
	b := &groupBuilder{group: g, env: env, adapter: adapter, scheme: scheme}
	for _, step := range []struct {
		what string
		do   func() error
	}{
		{"flags of the API server", b.readFlags},
		{"generic configuration", b.configure},
		{"OpenAPI", b.addOpenAPI},
		{"store", b.addStore},
		{"authorization", b.addAuthorizer},
		{"admission", b.addAdmission},
		{"resources", b.install},
	} {
		if err := step.do(); err != nil {
			return nil, fmt.Errorf("%s: %w", step.what, err)
		}
	}
	return adapter.Serve(apiserver.Server{GenericAPIServer: b.server})
}
