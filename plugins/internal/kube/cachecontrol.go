package kube

import (
	"context"
	"net/http"

	"k8s.io/apiserver/pkg/endpoints/request"
	genericapiserver "k8s.io/apiserver/pkg/server"
	utilflowcontrol "k8s.io/apiserver/pkg/util/flowcontrol"
	"k8s.io/kube-aggregator/pkg/apis/apiregistration"
)

// buildChain makes the filters of a server.
type buildChain = func(http.Handler, *genericapiserver.Config) http.Handler

// withCacheControl has responses of extension API servers say what Kubernetes' filter of that name, which is in the
// host, has every response say, besides what they say themselves: the proxy adds headers to those that are there, while
// the host's are replaced.
func withCacheControl(build buildChain) buildChain {
	return func(handler http.Handler, c *genericapiserver.Config) http.Handler {
		return build(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			// What the aggregator serves itself says when a watch has begun, on another goroutine.
			if info, ok := request.RequestInfoFrom(r.Context()); ok && info.APIGroup != apiregistration.GroupName {
				r = r.WithContext(utilflowcontrol.WithInitializationSignal(r.Context(), &delegated{outer: r.Context(), header: w.Header()}))
			}
			handler.ServeHTTP(w, r)
		}), c)
	}
}

// delegated is an initialization signal, which the aggregator sends before it passes a request on.
type delegated struct {
	outer  context.Context
	header http.Header
}

// Signal implements utilflowcontrol.InitializationSignal.
func (d *delegated) Signal() {
	d.header.Set("Cache-Control", "no-cache, private")
	utilflowcontrol.WatchInitialized(d.outer)
}

// Wait is not called: the host waits.
func (d *delegated) Wait() {}
