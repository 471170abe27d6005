package kube

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/apiserver/pkg/util/compatibility"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	openapinamer "k8s.io/apiserver/pkg/endpoints/openapi"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/filters"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	"k8s.io/apiserver/pkg/util/openapi"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	basecompatibility "k8s.io/component-base/compatibility"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	apiextensionsapiserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	aggregatorscheme "k8s.io/kube-aggregator/pkg/apiserver/scheme"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/controlplane"
	controlplaneapiserver "k8s.io/kubernetes/pkg/controlplane/apiserver"
	"k8s.io/kubernetes/pkg/kubeapiserver"
	rbacrest "k8s.io/kubernetes/pkg/registry/rbac/rest"

	"github.com/catena-dev/catena/internal/gctune"
	"github.com/catena-dev/catena/sdk"
	"github.com/catena-dev/catena/sdk/apiserver"
	"github.com/catena-dev/catena/sdk/kubeversion"
	"github.com/catena-dev/catena/sdk/servedinformers"
)

// base is what the configurations of the three servers have in common.
type base struct {
	env       *sdk.Env
	adapter   *apiserver.Adapter
	options   options.CompletedOptions
	generic   *genericapiserver.Config
	client    kubernetes.Interface
	informers informers.SharedInformerFactory
	storage   *serverstorage.DefaultStorageFactory
}

// headroom is what a stage's heap grows by before it collects garbage: about what is live in a kube-apiserver,
// which does the work of all of them.
const headroom = 128 << 20

// newBase mirrors controlplaneapiserver.BuildGenericConfig up to authentication,
// which only core needs. definitions are the OpenAPI definitions of what the
// server serves; Kubernetes has one set with all of them.
func newBase(env *sdk.Env, definitions common.GetOpenAPIDefinitions) (*base, error) {
	ctx := env.Context()
	completed, err := newOptions(ctx, env)
	if err != nil {
		return nil, err
	}
	adapter, err := apiserver.New(env)
	if err != nil {
		return nil, err
	}
	go gctune.Headroom(ctx, headroom)
	b := &base{env: env, adapter: adapter, options: completed}
	for _, step := range []struct {
		what string
		do   func() error
	}{
		{"generic configuration", b.buildGeneric},
		{"loopback client", b.buildClient},
		{"features, egress and tracing", b.applyFeatures},
		{"OpenAPI", func() error { return b.buildOpenAPI(definitions) }},
		{"storage", b.buildStorage},
		{"authorization", func() error { return b.buildAuthorizer(ctx) }},
	} {
		if err := step.do(); err != nil {
			return nil, fmt.Errorf("%s: %w", step.what, err)
		}
	}
	b.generic.AggregatedDiscoveryGroupManager = aggregated.NewResourceManager("apis")
	return b, nil
}

func (b *base) buildGeneric() error {
	b.generic = genericapiserver.NewConfig(codecs())
	if b.generic.APIServerID != "" {
		id, err := serverIdentity(b.env.Host().ExternalURL)
		if err != nil {
			return err
		}
		b.generic.APIServerID = id
	}
	b.generic.Flagz = b.options.Flagz
	b.generic.MergedResourceConfig = controlplane.DefaultAPIResourceConfigSource()
	if err := b.options.GenericServerRunOptions.ApplyTo(b.generic); err != nil {
		return err
	}
	b.generic.EffectiveVersion = kubeversion.Effective(b.generic.EffectiveVersion)
	kubeversion.AddBuildInfo(register, compatibility.DefaultBuildEffectiveVersion())
	b.generic.LongRunningFunc = filters.BasicLongRunningRequestCheck(
		sets.NewString("watch", "proxy"),
		sets.NewString("attach", "exec", "proxy", "log", "portforward"),
	)
	b.adapter.Configure(b.generic)
	b.generic.LoopbackClientConfig.UserAgent = userAgent()
	withStorageVersions(b.generic)
	return nil
}

// serveAs makes the server one of those that serve as a version of Kubernetes, which another stage has: that stage's is the path /version,
// and the merged OpenAPI document has its version.
func (b *base) serveAs(minor string) {
	b.generic.EffectiveVersion = withoutInfo{b.generic.EffectiveVersion}
	b.generic.OpenAPIConfig.Info.Version = minor
}

// withoutInfo is the version of a server that does not serve /version.
type withoutInfo struct {
	basecompatibility.EffectiveVersion
}

func (withoutInfo) Info() *version.Info { return nil }

// builtInStage returns the stage with the built-in resources, if there is one that says as which version of Kubernetes it serves.
func builtInStage(all []sdk.Delegate) (sdk.Delegate, bool) {
	i := slices.IndexFunc(all, func(d sdk.Delegate) bool {
		return d.KubernetesVersion != "" && slices.Contains(d.ListedPaths, "/api/v1")
	})
	if i < 0 {
		return sdk.Delegate{}, false
	}
	return all[i], true
}

// register registers metrics of the process, of which the first of a name counts.
func register(all ...metrics.Registerable) {
	for _, m := range all {
		_ = legacyregistry.Register(m)
	}
}

// userAgent is kube-apiserver's: the name of the field manager of what the servers
// create by themselves comes from it.
func userAgent() string {
	_, versions, _ := strings.Cut(rest.DefaultKubernetesUserAgent(), "/")
	return "kube-apiserver/" + versions
}

// informerResync is how often informers call their handlers again.
const informerResync = 10 * time.Minute

func (b *base) buildClient() error {
	client, err := kubernetes.NewForConfig(b.generic.LoopbackClientConfig)
	if err != nil {
		return err
	}
	b.client = client
	// The name in the metrics, which only one server of a process can have.
	name, _ := cache.NewInformerName("kube-apiserver")
	b.informers = servedinformers.New(informers.NewSharedInformerFactoryWithOptions(client, informerResync,
		informers.WithTransform(withoutManagedFields), informers.WithInformerName(name)), client.Discovery().RESTClient())
	return nil
}

// withoutManagedFields spares the memory of what no admission plugin reads.
func withoutManagedFields(object any) (any, error) {
	if accessor, err := meta.Accessor(object); err == nil && accessor.GetManagedFields() != nil {
		accessor.SetManagedFields(nil)
	}
	return object, nil
}

func (b *base) applyFeatures() error {
	if err := b.options.Features.ApplyTo(b.generic, b.client, b.informers); err != nil {
		return err
	}
	if b.generic.DebugSocketPath != "" {
		b.generic.DebugSocketPath = debugSocket(b.env)
	}
	if err := b.options.APIEnablement.ApplyTo(b.generic, b.generic.MergedResourceConfig, legacyscheme.Scheme); err != nil {
		return err
	}
	if err := b.options.EgressSelector.ApplyTo(b.generic); err != nil {
		return err
	}
	return b.options.Traces.ApplyTo(b.generic.EgressSelector, b.generic)
}

// debugSocket is where a process has the socket that the flag debug-socket-path asks for:
// STAGE-GENERATION.dbg in the runtime directory. The flag's own path is the host's. With
// one path for a stage, a process that ends would remove the socket of its successor. It
// is no longer than the path of the data socket, which the host has checked.
func debugSocket(env *sdk.Env) string {
	return filepath.Join(filepath.Dir(env.Host().Socket), env.Name+"-"+env.Generation()+".dbg")
}

func (b *base) buildOpenAPI(definitions common.GetOpenAPIDefinitions) error {
	definitions = openapi.GetOpenAPIDefinitionsWithoutDisabledFeatures(definitions)
	schemes := []*runtime.Scheme{legacyscheme.Scheme, apiextensionsapiserver.Scheme, aggregatorscheme.Scheme}
	namer := openapinamer.NewDefinitionNamer(schemes...)
	b.generic.OpenAPIConfig = genericapiserver.DefaultOpenAPIConfig(definitions, namer)
	b.generic.OpenAPIConfig.Info.Title = "Kubernetes"
	b.generic.OpenAPIV3Config = genericapiserver.DefaultOpenAPIV3Config(definitions, namer)
	b.generic.OpenAPIV3Config.Info.Title = "Kubernetes"
	return nil
}

func (b *base) buildStorage() error {
	etcd := b.options.Etcd
	// Kubernetes would dial a Unix socket as TCP: that of the embedded etcd is here.
	onSocket := slices.ContainsFunc(etcd.StorageConfig.Transport.ServerList,
		func(url string) bool { return strings.HasPrefix(url, "unix") })
	if b.generic.EgressSelector != nil && !onSocket {
		etcd.StorageConfig.Transport.EgressLookup = b.generic.EgressSelector.Lookup
	}
	etcd.StorageConfig.Transport.TracerProvider = b.generic.TracerProvider

	config := kubeapiserver.NewStorageFactoryConfigEffectiveVersion(b.generic.EffectiveVersion)
	config.APIResourceConfig = b.generic.MergedResourceConfig
	config.DefaultResourceEncoding.SetEffectiveVersion(b.generic.EffectiveVersion)
	factory, err := config.Complete(etcd).New()
	if err != nil {
		return err
	}
	factory.StorageConfig.StorageObjectCountTracker = b.generic.StorageObjectCountTracker
	b.storage = factory
	if err := etcd.ApplyWithStorageFactoryTo(factory, b.generic); err != nil {
		return err
	}
	b.generic.RESTOptionsGetter = b.adapter.WithHistory(b.generic.RESTOptionsGetter)
	return nil
}

func (b *base) buildAuthorizer(ctx context.Context) error {
	authorizer, resolver, rbac, err := controlplaneapiserver.BuildAuthorizer(
		ctx, b.options.CompletedOptions, b.generic.EgressSelector, b.generic.APIServerID, b.informers)
	if err != nil {
		return err
	}
	b.generic.Authorization.Authorizer, b.generic.RuleResolver = authorizer, resolver
	if b.options.Authorization != nil && !rbac {
		b.generic.DisabledPostStartHooks.Insert(rbacrest.PostStartHookName)
	}
	return nil
}
