//go:build kube1.36

package kube

import (
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/util/proxy"
	aggregatorapiserver "k8s.io/kube-aggregator/pkg/apiserver"
	controlplaneapiserver "k8s.io/kubernetes/pkg/controlplane/apiserver"
)

func (b *base) createConfig(
	_ proxy.EndpointSliceGetter, resolver aggregatorapiserver.ServiceResolver, initializers []admission.PluginInitializer,
) (*controlplaneapiserver.Config, []admission.PluginInitializer, error) {
	return controlplaneapiserver.CreateConfig(b.options.CompletedOptions, b.generic, b.informers, b.storage, resolver, initializers)
}
