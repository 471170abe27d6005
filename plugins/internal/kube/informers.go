package kube

import (
	"context"
	"reflect"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/scheme"
)

// tolerant is an informer factory for a server that may not have all of
// Kubernetes' resources: a chain without core has no services, and one
// informer of them would keep the server from getting ready.
type tolerant struct {
	informers.SharedInformerFactory
	// served reports whether the server has a group version.
	served func(schema.GroupVersion) bool
}

// WaitForCacheSync reports informers of resources that the server does not have
// as synced: they have everything that there is.
func (t tolerant) WaitForCacheSync(stop <-chan struct{}) map[reflect.Type]bool {
	synced := t.SharedInformerFactory.WaitForCacheSync(stop)
	for object, ok := range synced {
		if !ok {
			synced[object] = t.missing(object)
		}
	}
	return synced
}

func (t tolerant) missing(object reflect.Type) bool {
	if object.Kind() != reflect.Pointer {
		return false
	}
	example, ok := reflect.New(object.Elem()).Interface().(runtime.Object)
	if !ok {
		return false
	}
	kinds, _, err := scheme.Scheme.ObjectKinds(example)
	return err == nil && len(kinds) > 0 && !t.served(kinds[0].GroupVersion())
}

// servedFor is how long a response about a group version is taken for true, and
// how long it may take.
const servedFor = time.Second

// served asks the server for its group versions. Only a clear "not found" counts
// as no; a server that is incomplete says that it is unavailable.
func served(client discovery.DiscoveryInterface) func(schema.GroupVersion) bool {
	type result struct {
		served bool
		at     time.Time
	}
	var lock sync.Mutex
	known := map[schema.GroupVersion]result{}
	return func(gv schema.GroupVersion) bool {
		lock.Lock()
		defer lock.Unlock()
		if last, ok := known[gv]; ok && time.Since(last.at) < servedFor {
			return last.served
		}
		ctx, cancel := context.WithTimeout(context.Background(), servedFor)
		defer cancel()
		// Not the client's method for it, which takes a missing v1 for an empty one.
		err := client.RESTClient().Get().AbsPath(discoveryPath(gv)).Do(ctx).Error()
		known[gv] = result{served: !apierrors.IsNotFound(err), at: time.Now()}
		return known[gv].served
	}
}

func discoveryPath(gv schema.GroupVersion) string {
	if gv.Group == "" {
		return "/api/" + gv.Version
	}
	return "/apis/" + gv.Group + "/" + gv.Version
}
