package kube

import (
	"fmt"
	"net/http"

	client "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	generatedopenapi "k8s.io/apiextensions-apiserver/pkg/generated/openapi"
	"k8s.io/apiserver/pkg/util/webhook"
	controlplaneapiserver "k8s.io/kubernetes/pkg/controlplane/apiserver"

	"github.com/catena-dev/catena/plugins/internal/stuck"
	"github.com/catena-dev/catena/sdk"
	"github.com/catena-dev/catena/sdk/apiserver"
)

// NewExtensions is the constructor of the stage extensions: custom resource
// definitions and the custom resources that they define.
func NewExtensions(env *sdk.Env) (http.Handler, error) {
	b, err := newBase(env, generatedopenapi.GetOpenAPIDefinitions)
	if err != nil {
		return nil, fmt.Errorf("extensions: %w", err)
	}
	b.options.PeerCAFile = "" // the aggregator passes requests on
	shared, err := b.buildShared()
	if err != nil {
		return nil, fmt.Errorf("extensions: %w", err)
	}
	g := shared.config.Generic
	config, err := controlplaneapiserver.CreateAPIExtensionsConfig(
		*g, b.informers, shared.initializers, b.options.CompletedOptions, b.options.MasterCount, shared.resolver,
		webhook.NewDefaultAuthenticationInfoResolverWrapper(shared.config.ProxyTransport, g.EgressSelector,
			g.LoopbackClientConfig, g.TracerProvider))
	if err != nil {
		return nil, fmt.Errorf("extensions: %w", err)
	}
	// Kubernetes drops them because another server of the process has them.
	config.GenericConfig.PostStartHooks = g.PostStartHooks
	config.GenericConfig.RESTOptionsGetter = b.adapter.WithHistory(config.GenericConfig.RESTOptionsGetter)
	config.ExtraConfig.CRDRESTOptionsGetter = b.adapter.WithHistory(config.ExtraConfig.CRDRESTOptionsGetter)
	waitForColdCaches(&config.GenericConfig.Config, env.Draining())
	completed := config.Complete()
	// Kubernetes leaves /apis to the aggregator, with which it shares
	// memory. The aggregator of a chain asks for it, and there may be none.
	completed.GenericConfig.EnableDiscovery = true
	server, err := completed.New(b.adapter.Delegate())
	if err != nil {
		return nil, fmt.Errorf("extensions: %w", err)
	}
	if err := addStorageVersionHook(server.GenericAPIServer); err != nil {
		return nil, fmt.Errorf("extensions: %w", err)
	}
	claims := newExtensionsClaims(env, server)
	if err := addDocumentsSignal(env, server, claims); err != nil {
		return nil, fmt.Errorf("extensions: %w", err)
	}
	definitions, err := client.NewForConfig(g.LoopbackClientConfig)
	if err != nil {
		return nil, fmt.Errorf("extensions: %w", err)
	}
	if err := stuck.TouchDefinitions(env, server, definitions.CustomResourceDefinitions()); err != nil {
		return nil, fmt.Errorf("extensions: %w", err)
	}
	handler, err := b.adapter.Serve(apiserver.Server{GenericAPIServer: server.GenericAPIServer, Claims: claims.current})
	if err != nil {
		return nil, fmt.Errorf("extensions: %w", err)
	}
	return b.withDownstream(handler, server.GenericAPIServer, completed.GenericConfig.OpenAPIConfig), nil
}
