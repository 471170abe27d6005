package kube

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/labels"
	genericapiserver "k8s.io/apiserver/pkg/server"
	utilpeerproxy "k8s.io/apiserver/pkg/util/peerproxy"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kube-aggregator/pkg/apis/apiregistration"
	aggregatorapiserver "k8s.io/kube-aggregator/pkg/apiserver"
	listers "k8s.io/kube-aggregator/pkg/client/listers/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/controllers/autoregister"

	"github.com/catena-dev/catena/sdk"
	"github.com/catena-dev/catena/sdk/apiserver"
)

// automanaged is the value of autoregister.AutoRegisterManagedLabel of an APIService that comes and goes with custom resources.
const automanaged = "true"

// aggregatorClaims follows the APIServices: the aggregator has to get the
// requests that it proxies, and none of those that other stages serve.
type aggregatorClaims struct {
	env    *sdk.Env
	peers  utilpeerproxy.Interface // may be nil
	lister listers.APIServiceLister
	synced func() bool
	// complete is set once the server has installed the paths of all APIServices.
	complete atomic.Bool
	lock     sync.Mutex
	server   *genericapiserver.GenericAPIServer
	listed   []string
}

func newAggregatorClaims(env *sdk.Env, server *aggregatorapiserver.APIAggregator, peers utilpeerproxy.Interface) *aggregatorClaims {
	services := server.APIRegistrationInformers.Apiregistration().V1().APIServices()
	c := &aggregatorClaims{env: env, peers: peers, lister: services.Lister(), synced: services.Informer().HasSynced,
		server: server.GenericAPIServer}
	// It fails only for an informer that has been stopped.
	_, _ = services.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { c.update() },
		UpdateFunc: func(any, any) { c.update() },
		DeleteFunc: func(any) { c.update() },
	})
	// The server adds to its own map when others register signals.
	go c.await(maps.Clone(server.GenericAPIServer.MuxAndDiscoveryCompleteSignals()))
	return c
}

// await gives up the claim to everything when there is nothing left to find out.
func (c *aggregatorClaims) await(signals map[string]<-chan struct{}) {
	for _, signal := range signals {
		select {
		case <-signal:
		case <-c.env.Context().Done():
			return
		}
	}
	c.complete.Store(true)
	c.update()
}

func (c *aggregatorClaims) update() {
	c.lock.Lock()
	defer c.lock.Unlock()
	c.env.SetClaims(c.current()...)
	if paths := c.paths(); !slices.Equal(paths, c.listed) {
		c.listed = paths
		c.env.ListPaths(paths...)
	}
}

// paths are those for the index at /: the server's own, and those of APIs that no stage lists: of other servers, and of custom resources.
func (c *aggregatorClaims) paths() []string {
	// The server lists what it passes on too, a moment later than the APIServices change.
	paths := slices.DeleteFunc(apiserver.OwnPaths(c.server), func(path string) bool {
		return strings.HasPrefix(path, "/apis/") && path != "/apis/" && !strings.HasPrefix(path, "/apis/"+apiregistration.GroupName)
	})
	services, _ := c.lister.List(labels.Everything())
	for _, service := range services {
		if service.Spec.Group != "" && (service.Spec.Service != nil ||
			service.Labels[autoregister.AutoRegisterManagedLabel] == automanaged) {
			group := "/apis/" + service.Spec.Group
			paths = append(paths, group, group+"/"+service.Spec.Version)
		}
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

// current returns the claims that hold now. Until the server knows all
// APIServices, it claims whatever could be one of them: the requests that are
// not for it are declined, or have to wait.
func (c *aggregatorClaims) current() []sdk.Claim {
	claims := []sdk.Claim{
		sdk.Exact("/apis"), sdk.Exact("/apis/"), sdk.Child("/apis"),
		sdk.Exact("/openapi/v2"), sdk.Prefix("/openapi/v3"),
		sdk.Prefix("/apis/apiregistration.k8s.io"),
	}
	if !c.complete.Load() {
		claims = append(claims, sdk.Prefix("/apis"))
	}
	claims = append(claims, peerClaims(c.peers)...)
	// The lister reads memory; it cannot fail.
	services, _ := c.lister.List(labels.Everything())
	for _, service := range services {
		switch {
		case service.Spec.Service == nil:
		case service.Spec.Group == "":
			claims = append(claims, sdk.Prefix("/api"))
		default:
			group := "/apis/" + service.Spec.Group
			claims = slices.Concat(claims, namesOf(group), namesOf(group+"/"+service.Spec.Version))
		}
	}
	return claims
}
