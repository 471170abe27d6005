package kube

import (
	"maps"
	"slices"
	"strings"
	"sync"

	apiextensionsapiserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	informers "k8s.io/apiextensions-apiserver/pkg/client/informers/externalversions/apiextensions/v1"
	"k8s.io/apimachinery/pkg/labels"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/tools/cache"

	"github.com/catena-dev/catena/sdk"
	"github.com/catena-dev/catena/sdk/apiserver"
)

// extensionsClaims follows the definitions of custom resources: their groups and versions are claimed by name, besides all
// that could become one, from before a definition is established until it is gone.
type extensionsClaims struct {
	env         *sdk.Env
	server      *genericapiserver.GenericAPIServer
	definitions informers.CustomResourceDefinitionInformer
	changed     chan struct{} // has room for one value

	lock  sync.Mutex
	named []string // paths, sorted
}

// newExtensionsClaims follows the definitions until the stage ends.
func newExtensionsClaims(env *sdk.Env, server *apiextensionsapiserver.CustomResourceDefinitions) *extensionsClaims {
	c := &extensionsClaims{
		env: env, server: server.GenericAPIServer, definitions: server.Informers.Apiextensions().V1().CustomResourceDefinitions(),
		changed: make(chan struct{}, 1),
	}
	change := func() {
		select {
		case c.changed <- struct{}{}:
		default:
		}
	}
	informer := c.definitions.Informer()
	// It fails only for an informer that has been stopped.
	_, _ = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { change() }, UpdateFunc: func(any, any) { change() }, DeleteFunc: func(any) { change() },
	})
	go func() {
		for {
			select {
			case <-c.changed:
				if informer.HasSynced() { // until then all that could become one is claimed
					c.update()
				}
			case <-env.Context().Done():
				return
			}
		}
	}()
	return c
}

// update claims what is defined now.
func (c *extensionsClaims) update() {
	c.lock.Lock()
	defer c.lock.Unlock()
	// The lister reads memory; it cannot fail.
	definitions, _ := c.definitions.Lister().List(labels.Everything())
	paths := map[string]bool{}
	for _, definition := range definitions {
		group := "/apis/" + definition.Spec.Group
		paths[group] = true
		for _, v := range definition.Spec.Versions {
			paths[group+"/"+v.Name] = true
		}
	}
	if named := slices.Sorted(maps.Keys(paths)); !slices.Equal(named, c.named) {
		c.named = named
		c.env.SetClaims(c.claims()...)
	}
}

// current are the claims that hold now.
func (c *extensionsClaims) current() []sdk.Claim {
	c.lock.Lock()
	defer c.lock.Unlock()
	return c.claims()
}

func (c *extensionsClaims) claims() []sdk.Claim {
	claims := apiserver.ClaimsOf(c.server)
	for _, path := range c.named {
		claims = append(claims, namesOf(path)...)
	}
	return claims
}

// namesOf are the claims of a group, such as /apis/example.com, which is a document, or of a version of it and what is below.
func namesOf(path string) []sdk.Claim {
	if strings.Count(path, "/") == 2 {
		return []sdk.Claim{sdk.Exact(path), sdk.Exact(path + "/")}
	}
	return []sdk.Claim{sdk.Prefix(path)}
}
