package kube

import (
	"context"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	genericapiserver "k8s.io/apiserver/pkg/server"
	utilpeerproxy "k8s.io/apiserver/pkg/util/peerproxy"

	"github.com/catena-dev/catena/sdk"
)

// localDiscoveryRetry is how often what the server serves itself is asked for until the
// response comes.
const localDiscoveryRetry = 200 * time.Millisecond

// withPeers makes the filter chain that build makes pass requests on to the other servers of
// the cluster, those for resources that they alone have. proxy may be nil.
func withPeers(build buildChain, proxy utilpeerproxy.Interface) buildChain {
	if proxy == nil {
		return build
	}
	return func(handler http.Handler, c *genericapiserver.Config) http.Handler {
		return build(proxy.WrapHandler(handler), c)
	}
}

// addPeerHooks runs what keeps proxy informed of the other servers, as kube-apiserver's core
// server does for the aggregator of the same process. They are found by their leases, which
// core has, and what they serve is compared with the custom resources, which extensions has:
// without these two stages there are no peers.
func (a *aggregator) addPeerHooks(proxy utilpeerproxy.Interface) error {
	if proxy == nil || !a.hasCRDs() || !a.hasLeases() {
		return nil
	}
	discovery := a.server.GenericAPIServer.PeerAggregatedDiscoveryManager
	proxy.RegisterCacheInvalidationCallback(func() {
		discovery.InvalidateCache()
		a.claims.update()
	})
	for name, hook := range map[string]genericapiserver.PostStartHookFunc{
		"mixed-version-proxy-handler": func(hook genericapiserver.PostStartHookContext) error {
			return proxy.WaitForCacheSync(hook.Done())
		},
		"local-discovery-cache-sync": func(hook genericapiserver.PostStartHookContext) error {
			if waitAll(hook, a.discoveries) {
				a.findLocal(hook, proxy)
			}
			return nil
		},
		"peer-discovery-workers": func(hook genericapiserver.PostStartHookContext) error {
			go proxy.RunPeerDiscoveryCacheSync(hook, 1)
			go proxy.RunPeerDiscoveryActiveGVTracker(hook)
			go proxy.RunPeerDiscoveryRefilter(hook)
			return nil
		},
	} {
		if err := a.server.GenericAPIServer.AddPostStartHook(name, hook); err != nil {
			return err
		}
	}
	return nil
}

// findLocal tells proxy what this server serves. A stage may be down: that is no reason to end.
func (a *aggregator) findLocal(ctx context.Context, proxy utilpeerproxy.Interface) {
	_ = wait.PollUntilContextCancel(ctx, localDiscoveryRetry, true, func(ctx context.Context) (bool, error) {
		err := proxy.RunLocalDiscoveryCacheSync(ctx.Done())
		if err != nil {
			a.env.Log.Warn("what this server serves is not known yet", "error", err)
		}
		return err == nil, nil
	})
}

// peerClaims are what the aggregator claims because of other servers: if there are any, each
// API request may be for one of them.
func peerClaims(proxy utilpeerproxy.Interface) []sdk.Claim {
	if proxy == nil || len(proxy.GetPeerResources()) == 0 {
		return nil
	}
	return []sdk.Claim{sdk.Prefix("/api"), sdk.Prefix("/apis")}
}
