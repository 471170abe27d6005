package front

import (
	"errors"

	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/storage"
	etcdmetrics "k8s.io/apiserver/pkg/storage/etcd3/metrics"
	clientgoinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	openapicommon "k8s.io/kube-openapi/pkg/common"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"
	"k8s.io/kubernetes/pkg/controlplane"
	controlplaneapiserver "k8s.io/kubernetes/pkg/controlplane/apiserver"

	"github.com/catena-dev/catena/sdk/kubeversion"
)

// genericConfig is kube-apiserver's configuration of a generic server, without
// what its registries need: those are in the stages.
func genericConfig(completed options.CompletedOptions, flags *Flags, clients *connections) (
	*genericapiserver.Config, clientgoinformers.SharedInformerFactory, error,
) {
	completed.Flagz = flagz(flags)
	// The stages that use the store check it, encrypt for it and measure it.
	completed.Etcd.SkipHealthEndpoints = true
	completed.Etcd.EncryptionProviderConfigFilepath = ""
	completed.Etcd.EncryptionProviderConfigAutomaticReload = false

	// The name in the metrics, which only one server of a process can have.
	name, _ := cache.NewInformerName("kube-apiserver")
	config, informers, _, err := controlplaneapiserver.BuildGenericConfig(
		completed.CompletedOptions, nil, controlplane.DefaultAPIResourceConfigSource(), noOpenAPI, name)
	if err != nil {
		return nil, nil, errors.Join(flags.configErrors(err)...)
	}
	etcdmetrics.SetStorageMonitorGetter(func() ([]etcdmetrics.Monitor, error) { return nil, nil })

	config.EffectiveVersion = kubeversion.Effective(config.EffectiveVersion)
	config.Authentication.Authenticator = loopbackAuthenticator{
		next:      config.Authentication.Authenticator,
		audiences: config.Authentication.APIAudiences,
		clients:   clients,
	}
	// Discovery and OpenAPI are the stages'; the index is the front's own, which
	// lists their paths too.
	config.EnableDiscovery = false
	config.SkipOpenAPIInstallation = true
	config.EnableIndex = false
	config.EnableMetrics = false // see installMetrics
	return config, informers, nil
}

// applyMetrics applies the flags about metrics, if there are any: Kubernetes'
// code logs an error without them.
func (f *Flags) applyMetrics() {
	for _, name := range []string{"show-hidden-metrics-for-version", "disabled-metrics", "allow-metric-labels",
		"allow-metric-labels-manifest"} {
		if f.operator[name] {
			f.options.Metrics.Apply()
			return
		}
	}
}

// noOpenAPI keeps the definitions of all built-in types out of the host's memory.
func noOpenAPI(openapicommon.ReferenceCallback) map[string]openapicommon.OpenAPIDefinition {
	return nil
}

func stats(count, objectBytes int64) storage.Stats {
	return storage.Stats{ObjectCount: count, EstimatedAverageObjectSizeBytes: objectBytes}
}
