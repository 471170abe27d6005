package kube

import (
	"context"
	"fmt"
	"net/url"

	"k8s.io/apiserver/pkg/admission"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/util/proxy"
	"k8s.io/client-go/informers"
	aggregatorapiserver "k8s.io/kube-aggregator/pkg/apiserver"
	controlplaneapiserver "k8s.io/kubernetes/pkg/controlplane/apiserver"
	kubeapiserveradmission "k8s.io/kubernetes/pkg/kubeapiserver/admission"
)

// shared is what kube-apiserver builds for its core server and hands on to the
// other two: admission, and the way to services.
type shared struct {
	config       *controlplaneapiserver.Config
	resolver     aggregatorapiserver.ServiceResolver
	initializers []admission.PluginInitializer
}

// buildShared mirrors what app.CreateKubeAPIServerConfig does for a server
// that is not core.
func (b *base) buildShared() (*shared, error) {
	if err := b.describeSecurity(); err != nil {
		return nil, fmt.Errorf("authentication: %w", err)
	}
	initializers, err := (&kubeapiserveradmission.Config{}).New()
	if err != nil {
		return nil, fmt.Errorf("admission plugin initializers: %w", err)
	}
	slices, err := proxy.NewEndpointSliceIndexerGetter(b.informers.Discovery().V1().EndpointSlices())
	if err != nil {
		return nil, fmt.Errorf("endpoint slices: %w", err)
	}
	resolver, err := b.serviceResolver(slices)
	if err != nil {
		return nil, err
	}
	config, all, err := b.createConfig(slices, resolver, initializers)
	if err != nil {
		return nil, err
	}
	return &shared{config: config, resolver: resolver, initializers: all}, nil
}

// serviceResolver finds the address of a service; the API server's own is
// reached at the address that clients use.
func (b *base) serviceResolver(slices proxy.EndpointSliceGetter) (aggregatorapiserver.ServiceResolver, error) {
	external, err := url.Parse(b.env.Host().ExternalURL)
	if err != nil {
		return nil, fmt.Errorf("external address of the server: %w", err)
	}
	services := b.informers.Core().V1().Services().Lister()
	resolver := aggregatorapiserver.NewClusterIPServiceResolver(services)
	if b.options.EnableAggregatorRouting {
		resolver = aggregatorapiserver.NewEndpointServiceResolver(services, slices)
	}
	return aggregatorapiserver.NewLoopbackServiceResolver(resolver, external), nil
}

// describeSecurity puts the ways to authenticate into the OpenAPI documents. Kubernetes knows them only once it has
// built the authenticators, so they are built, with informers that are never started, and dropped. Client certificates
// are in no document; who follows their files has queues that are never ended. Tokens of OIDC are bearer tokens as
// those of service accounts are; who checks them asks their provider at once.
func (b *base) describeSecurity() error {
	ctx, cancel := context.WithCancel(b.env.Context())
	defer cancel()
	var dropped genericapiserver.AuthenticationInfo
	described := *b.options.Authentication
	described.ClientCert, described.RequestHeader = nil, nil
	described.OIDC, described.AuthenticationConfigFile = nil, ""
	return described.ApplyTo(ctx, &dropped, nil, b.generic.EgressSelector,
		b.generic.OpenAPIConfig, b.generic.OpenAPIV3Config, b.client,
		informers.NewSharedInformerFactory(b.client, 0), b.generic.APIServerID)
}
