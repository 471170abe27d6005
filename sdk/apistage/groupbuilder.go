package apistage

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/util/compatibility"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"

	"github.com/catena-dev/catena/sdk"
	"github.com/catena-dev/catena/sdk/apiserver"
	"github.com/catena-dev/catena/sdk/klogr"
	"github.com/catena-dev/catena/sdk/kubeversion"
)

// groupBuilder makes the server of a Group; its methods are the steps in their order.
type groupBuilder struct {
	group   Group
	env     *sdk.Env
	adapter *apiserver.Adapter
	scheme  *groupScheme
	flags   *groupFlags
	config  *genericapiserver.Config
	setup   *Setup
	rights  *rights
	server  *genericapiserver.GenericAPIServer
}

func (b *groupBuilder) readFlags() (err error) {
	if b.flags, err = parseGroupFlags(b.env.Flags()); err != nil {
		return err
	}
	// A client in a stage has no user to warn.
	restclient.SetDefaultWarningHandler(restclient.NoWarnings{})
	return klogr.Install(b.env.Log, b.flags.verbosity, b.flags.vmodule)
}

// informerResync is how often informers call their handlers again.
const informerResync = 10 * time.Minute

func (b *groupBuilder) configure() error {
	c := genericapiserver.NewConfig(b.scheme.codecs)
	c.EffectiveVersion = kubeversion.Effective(compatibility.DefaultBuildEffectiveVersion())
	b.adapter.Configure(c)
	if err := b.flags.egress.ApplyTo(c); err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(c.LoopbackClientConfig)
	if err != nil {
		return fmt.Errorf("loopback client: %w", err)
	}
	b.config = c
	b.setup = &Setup{
		Env: b.env, Scheme: b.scheme.Scheme, GroupVersion: b.scheme.stored,
		Loopback: c.LoopbackClientConfig, Client: client,
		Informers: informers.NewSharedInformerFactory(client, informerResync),
		Config:    c,
	}
	return nil
}

// addStore puts the objects into the store under the stage's own prefix.
func (b *groupBuilder) addStore() error {
	etcd := *b.flags.etcd
	if len(etcd.StorageConfig.Transport.ServerList) == 0 {
		// A server without a store: its resources have storage of their own.
		b.config.RESTOptionsGetter = noStore{}
		return nil
	}
	etcd.StorageConfig.Prefix = strings.TrimSuffix(etcd.StorageConfig.Prefix, "/") + "/stages/" + b.env.Name
	etcd.StorageConfig.Codec = b.scheme.codecs.LegacyCodec(b.scheme.stored)
	etcd.StorageConfig.StorageObjectCountTracker = b.config.StorageObjectCountTracker
	etcd.StorageConfig.Transport.TracerProvider = b.config.TracerProvider
	if b.config.EgressSelector != nil && !onUnixSocket(etcd.StorageConfig.Transport.ServerList) {
		etcd.StorageConfig.Transport.EgressLookup = b.config.EgressSelector.Lookup
	}
	err := etcd.ApplyWithStorageFactoryTo(&groupStorageFactory{
		SimpleStorageFactory: options.SimpleStorageFactory{StorageConfig: etcd.StorageConfig},
		scheme:               b.scheme,
	}, b.config)
	if err != nil {
		return err
	}
	b.config.RESTOptionsGetter = b.adapter.WithHistory(b.config.RESTOptionsGetter)
	return nil
}

// onUnixSocket reports whether etcd is on this machine, where nothing is dialed through a proxy.
func onUnixSocket(servers []string) bool {
	return slices.ContainsFunc(servers, func(url string) bool { return strings.HasPrefix(url, "unix") })
}

// addAuthorizer asks the server about users' rights: the authorizer is asked when an
// apply creates an object, and by policies.
func (b *groupBuilder) addAuthorizer() error {
	if b.flags.alwaysAllow() {
		b.config.Authorization.Authorizer = authorizerfactory.NewAlwaysAllowAuthorizer()
		return nil
	}
	authorizer, err := authorizerfactory.DelegatingAuthorizerConfig{
		SubjectAccessReviewClient: b.setup.Client.AuthorizationV1(),
		AllowCacheTTL:             10 * time.Second,
		DenyCacheTTL:              10 * time.Second,
		WebhookRetryBackoff:       options.DefaultAuthWebhookRetryBackoff(),
	}.New()
	b.config.Authorization.Authorizer = authorizer
	return err
}

func (b *groupBuilder) install() error {
	server, err := b.config.Complete(nil).New(b.env.Name, b.adapter.Delegate())
	if err != nil {
		return err
	}
	b.server = server
	group := genericapiserver.NewDefaultAPIGroupInfo(b.scheme.stored.Group, b.scheme.Scheme,
		runtime.NewParameterCodec(b.scheme.Scheme), b.scheme.codecs)
	if !b.scheme.hasProtobuf() {
		group.NegotiatedSerializer = withoutProtobuf(group.NegotiatedSerializer)
	}
	for _, resource := range b.group.Resources {
		storages, err := resource.storage(b.setup)
		if err != nil {
			return err
		}
		if err := b.addStorages(&group, storages); err != nil {
			return err
		}
	}
	group.PrioritizedVersions = slices.DeleteFunc(group.PrioritizedVersions, func(v groupVersion) bool {
		return len(group.VersionedResourcesStorageMap[v.Version]) == 0
	})
	if err := server.InstallAPIGroup(&group); err != nil {
		return err
	}
	return b.addHooks()
}

// addStorages adds the storages of one resource to all versions that have its kind, and
// those of its subresources to all that have theirs too.
func (b *groupBuilder) addStorages(group *genericapiserver.APIGroupInfo, storages map[string]rest.Storage) error {
	for path, storage := range storages {
		resource, _, _ := strings.Cut(path, "/")
		kind, err := b.scheme.kindOf(storages[resource].New())
		if err != nil {
			return fmt.Errorf("resource %q: %w", resource, err)
		}
		for _, v := range b.scheme.versionsOf(kind) {
			if !b.scheme.serves(v, storage) {
				continue
			}
			byPath := group.VersionedResourcesStorageMap[v.Version]
			if byPath == nil {
				byPath = map[string]rest.Storage{}
				group.VersionedResourcesStorageMap[v.Version] = byPath
			}
			if byPath[path] != nil {
				return fmt.Errorf("resource %q is there twice", path)
			}
			byPath[path] = storage
		}
	}
	return nil
}

func (b *groupBuilder) addHooks() error {
	return b.server.AddPostStartHook("start-group", func(hook genericapiserver.PostStartHookContext) error {
		go func() {
			if b.rights.await(hook) {
				b.setup.Informers.Start(hook.Done())
			}
		}()
		if start := b.group.Start; start != nil {
			b.inBackground(hook, "Start", func(ctx context.Context) error {
				return b.env.Lead(ctx, "start", func(ctx context.Context) error { return start(ctx, b.setup) })
			})
		}
		if start := b.group.StartEverywhere; start != nil {
			b.inBackground(hook, "StartEverywhere", func(ctx context.Context) error { return start(ctx, b.setup) })
		}
		return nil
	})
}

func (b *groupBuilder) inBackground(ctx context.Context, what string, f func(context.Context) error) {
	go func() {
		if err := f(ctx); err != nil {
			b.env.Log.Error("the group's "+what+" has failed", "error", err)
		} else if ctx.Err() == nil {
			b.env.Log.Debug("the group's " + what + " has ended")
		}
	}()
}
