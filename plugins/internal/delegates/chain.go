// Package delegates stands in, inside the aggregator's process, for the servers
// that it delegates to: they are stages in other processes. In a chain without the aggregator
// the first stage with an API merges their documents with it.
//
// The aggregator walks its delegation chain for three things: the listed paths,
// which it registers as APIServices; the OpenAPI documents, which it merges; and
// requests that it does not serve itself. The chain here has the paths that the
// stages have reported, asks the stages for the documents, and declines the
// requests, which the host then takes to the next stage.
//
// Where kube-apiserver's servers share one discovery manager in memory, Discovery
// keeps the aggregator's up to date with what the stages serve.
package delegates

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/compatibility"

	"github.com/catena-dev/catena/sdk"
)

// Chain returns a delegation chain with one server for each delegate, the
// nearest first. Their handlers are asked for OpenAPI documents; all other
// requests go to end. The stages that speak for the whole API come before all others: in documents that are merged, what has the same name
// is the first one's.
func Chain(delegates []sdk.Delegate, effective compatibility.EffectiveVersion, end http.Handler) (genericapiserver.DelegationTarget, error) {
	target := genericapiserver.NewEmptyDelegateWithCustomHandler(end)
	delegates = slices.SortedStableFunc(slices.Values(delegates), func(a, b sdk.Delegate) int {
		switch first, second := speaksForAll(a), speaksForAll(b); {
		case first == second:
			return 0
		case first:
			return -1
		default:
			return 1
		}
	})
	for _, delegate := range slices.Backward(delegates) {
		server, err := shell(delegate, effective, end, target)
		if err != nil {
			return nil, fmt.Errorf("stand-in for stage %q: %w", delegate.Name, err)
		}
		target = server
	}
	return target, nil
}

// hookOfEveryServer would be registered once for each server of the chain.
const hookOfEveryServer = "max-in-flight-filter"

// shell returns a server that has the delegate's paths and nothing of its own.
// A DelegationTarget has unexported types in its methods, so only a
// GenericAPIServer can be one.
func shell(delegate sdk.Delegate, effective compatibility.EffectiveVersion, end http.Handler, next genericapiserver.DelegationTarget) (*genericapiserver.GenericAPIServer, error) {
	config := genericapiserver.NewConfig(serializer.NewCodecFactory(runtime.NewScheme()))
	config.EffectiveVersion = effective
	config.ExternalAddress = "localhost:443"
	config.LoopbackClientConfig = &rest.Config{}
	config.BuildHandlerChainFunc = func(handler http.Handler, _ *genericapiserver.Config) http.Handler { return handler }
	config.SkipOpenAPIInstallation = true
	config.EnableIndex = false
	config.EnableDiscovery = false
	config.EnableMetrics = false
	config.EnableProfiling = false
	config.StorageObjectCountTracker = nil
	config.HealthzChecks, config.LivezChecks, config.ReadyzChecks = nil, nil, nil
	config.DisabledPostStartHooks.Insert(hookOfEveryServer)
	server, err := config.Complete(nil).New(delegate.Name, next)
	if err != nil {
		return nil, err
	}
	register(server, delegate, end)
	return server, nil
}

// register makes server list the delegate's paths. Only the OpenAPI documents
// are fetched through it; the aggregator merges those of the whole chain. The
// delegate may not have listed them yet, since a server makes them last.
func register(server *genericapiserver.GenericAPIServer, delegate sdk.Delegate, end http.Handler) {
	mux := server.Handler.NonGoRestfulMux
	for _, path := range slices.Compact(slices.Sorted(slices.Values(delegate.ListedPaths))) {
		if !strings.HasPrefix(path, "/openapi/") {
			mux.Handle(path, end)
		}
	}
	mux.UnlistedHandle("/openapi/v2", delegate.Handler)
	mux.UnlistedHandle("/openapi/v3", delegate.Handler)
	mux.UnlistedHandlePrefix("/openapi/v3/", delegate.Handler)
}

// ServesAPI reports whether delegate is a Kubernetes-style API server, which has
// discovery and OpenAPI documents.
func ServesAPI(delegate sdk.Delegate) bool { return slices.Contains(delegate.ListedPaths, apis) }

// apis is the root of discovery.
const apis = "/apis"
