package kube

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apiextensionsinformers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/tools/cache"
	aggregatorapiserver "k8s.io/kube-aggregator/pkg/apiserver"
	generatedopenapi "k8s.io/kube-aggregator/pkg/generated/openapi"
	controlplaneapiserver "k8s.io/kubernetes/pkg/controlplane/apiserver"

	"github.com/catena-dev/catena/plugins/internal/delegates"
	"github.com/catena-dev/catena/sdk"
	"github.com/catena-dev/catena/sdk/apiserver"
)

// NewAggregator is the constructor of the stage aggregator: APIServices, and
// one discovery and one OpenAPI document for the whole chain.
func NewAggregator(env *sdk.Env) (http.Handler, error) {
	a, err := newAggregator(env)
	if err != nil {
		return nil, fmt.Errorf("aggregator: %w", err)
	}
	return a.adapter.Serve(apiserver.Server{
		GenericAPIServer: a.server.GenericAPIServer,
		Prepare:          a.prepare,
		Claims:           a.claims.current,
		StartupChecks:    []string{"autoregister-completion"},
	})
}

type aggregator struct {
	*base
	server *aggregatorapiserver.APIAggregator
	claims *aggregatorClaims
	// discoveries has one entry for each stage downstream.
	discoveries []*delegates.Discovery
	crds        apiextensionsinformers.SharedInformerFactory
	// prepared is set when Kubernetes' server is.
	prepared atomic.Bool
}

func newAggregator(env *sdk.Env) (*aggregator, error) {
	b, err := newBase(env, generatedopenapi.GetOpenAPIDefinitions)
	if err != nil {
		return nil, err
	}
	if core, ok := builtInStage(env.Delegates()); ok {
		b.serveAs(core.KubernetesVersion)
	}
	shared, err := b.buildShared()
	if err != nil {
		return nil, err
	}
	g := shared.config.Generic
	config, err := controlplaneapiserver.CreateAggregatorConfig(
		*g, b.options.CompletedOptions, b.informers, shared.resolver, shared.config.ProxyTransport,
		shared.config.PeerProxy, shared.initializers)
	if err != nil {
		return nil, err
	}
	// Kubernetes drops them because another server of the process has them.
	config.GenericConfig.PostStartHooks = g.PostStartHooks
	config.GenericConfig.RESTOptionsGetter = b.adapter.WithHistory(config.GenericConfig.RESTOptionsGetter)
	// Some feature gates replace the chain of filters, most of which are the host's.
	chainOf := withPeers(g.BuildHandlerChainFunc, shared.config.PeerProxy)
	config.GenericConfig.BuildHandlerChainFunc = withCacheControl(chainOf)

	a := &aggregator{base: b}
	if a.crds, err = newCRDInformers(g); err != nil {
		return nil, err
	}
	stages := b.delegates()
	priorities := priorities(stages)
	downstream, err := a.discover(stages, priorities)
	if err != nil {
		return nil, err
	}
	chain, err := delegates.Chain(downstream, g.EffectiveVersion, http.HandlerFunc(b.adapter.Decline))
	if err != nil {
		return nil, err
	}
	a.server, err = controlplaneapiserver.CreateAggregatorServer(
		config.Complete(), chain, a.crds.Apiextensions().V1().CustomResourceDefinitions(), a.hasCRDs(), priorities)
	if err != nil {
		return nil, err
	}
	a.claims = newAggregatorClaims(env, a.server, shared.config.PeerProxy)
	return a, errors.Join(a.addHooks(), a.addPeerHooks(shared.config.PeerProxy))
}

// newCRDInformers returns informers for custom resource definitions without
// their schemas, which only the stage that serves them needs.
func newCRDInformers(g *genericapiserver.Config) (apiextensionsinformers.SharedInformerFactory, error) {
	client, err := apiextensionsclient.NewForConfig(g.LoopbackClientConfig)
	if err != nil {
		return nil, fmt.Errorf("client for custom resource definitions: %w", err)
	}
	strip := func(object any) (any, error) {
		if crd, ok := object.(*apiextensionsv1.CustomResourceDefinition); ok {
			crd.ManagedFields = nil
			for i := range crd.Spec.Versions {
				crd.Spec.Versions[i].Schema = nil
			}
		}
		return object, nil
	}
	return apiextensionsinformers.NewSharedInformerFactoryWithOptions(client, 0, apiextensionsinformers.WithTransform(strip)), nil
}

const (
	// crdPath is listed by the stage that serves custom resource definitions.
	crdPath = "/apis/apiextensions.k8s.io/v1"
	// leasePath is listed by the stage that serves built-in resources.
	leasePath = "/apis/coordination.k8s.io/v1"
)

func (a *aggregator) hasCRDs() bool {
	return slices.ContainsFunc(a.env.Delegates(), listsCRDs)
}

// hasLeases reports whether a stage downstream has the built-in resources.
func (a *aggregator) hasLeases() bool {
	return slices.ContainsFunc(a.env.Delegates(), func(d sdk.Delegate) bool { return slices.Contains(d.ListedPaths, leasePath) })
}

func listsCRDs(delegate sdk.Delegate) bool { return slices.Contains(delegate.ListedPaths, crdPath) }

// prepare finishes the server. The stages downstream are prepared by then,
// so that discovery and OpenAPI begin complete if the host serves already.
func (a *aggregator) prepare() error {
	var all sync.WaitGroup
	for _, d := range a.discoveries {
		all.Go(func() { d.Sync(a.env.Context()) })
	}
	all.Wait()
	_, err := a.server.PrepareRun()
	a.prepared.Store(true)
	for _, d := range a.discoveries {
		d.Wait()
	}
	return err
}

// discover makes a Discovery for each stage downstream that has an API, and
// returns the stages as the aggregator is to see them.
func (a *aggregator) discover(downstream []sdk.Delegate, priorities priorityMap) ([]sdk.Delegate, error) {
	core, hasCore := builtInStage(downstream)
	for i, delegate := range downstream {
		if !delegates.ServesAPI(delegate) {
			warnUndiscovered(a.env, delegate)
			downstream[i].Handler = withoutOpenAPI()
			continue
		}
		d := delegates.NewDiscovery(delegate, a.generic.AggregatedDiscoveryGroupManager, builtin(delegate, priorities))
		d.Place = i
		d.Log = func(err error) { logDiscovery(a.env, d, err) }
		documents := d.Gate()
		if hasCore && delegate.Name != core.Name {
			documents = withoutServerDocuments(documents)
		}
		validate := &validateOpenAPI{next: documents, log: a.env.Log.With("delegate", delegate.Name), optional: delegate.Optional}
		if hasCore && delegate.Name == core.Name {
			validate.version = core.KubernetesVersion
		}
		downstream[i].Handler = untilPrepared(&a.prepared, validate)
		a.discoveries = append(a.discoveries, d)
		if listsCRDs(delegate) {
			if err := a.pokeOnCRD(d); err != nil {
				return nil, err
			}
		}
	}
	return downstream, nil
}

// addHooks starts what the stage has besides Kubernetes' server. The server is
// complete when all stages have told what they serve.
func (a *aggregator) addHooks() error {
	server := a.server.GenericAPIServer
	discovered := make(chan struct{})
	if err := server.RegisterMuxAndDiscoveryCompleteSignal("StagesDiscovered", discovered); err != nil {
		return err
	}
	err := server.AddPostStartHook("discover-stages", func(hook genericapiserver.PostStartHookContext) error {
		for _, d := range a.discoveries {
			go d.Run(hook)
		}
		if waitAll(hook, a.discoveries) {
			a.warnMissing()
			a.awaitOpenAPI(hook)
			a.awaitAPIServices(hook)
			close(discovered)
		}
		return nil
	})
	if err != nil || !a.hasCRDs() {
		return err
	}
	return server.AddPostStartHook("start-crd-informers", func(hook genericapiserver.PostStartHookContext) error {
		a.crds.Start(hook.Done())
		return nil
	})
}

// optionalTimeout is how long the start waits for documents of stages that the server is ready without.
const optionalTimeout = 5 * time.Second

// waitAll waits until the documents of the stages have come, but no longer than optionalTimeout for those that are optional. It
// reports whether ctx has not ended.
func waitAll(ctx context.Context, discoveries []*delegates.Discovery) bool {
	some, cancel := context.WithTimeout(ctx, optionalTimeout)
	defer cancel()
	for _, d := range discoveries {
		wait := ctx
		if d.Delegate.Optional {
			wait = some
		}
		select {
		case <-d.Synced():
		case <-wait.Done():
		}
	}
	return ctx.Err() == nil
}

// pokeOnCRD makes d look at once when a custom resource definition changes.
func (a *aggregator) pokeOnCRD(d *delegates.Discovery) error {
	_, err := a.crds.Apiextensions().V1().CustomResourceDefinitions().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { d.Poke() },
		UpdateFunc: func(any, any) { d.Poke() },
		DeleteFunc: func(any) { d.Poke() },
	})
	return err
}
