package front

import (
	"context"
	"reflect"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
)

// legacyAPI is a path that a server of the built-in Kubernetes APIs lists.
const legacyAPI = "/api/v1"

// filterInformers are the informers of the filters: RBAC and Node authorization,
// priority and fairness, service account tokens. They watch the built-in APIs, which a
// chain need not serve, or not yet: they are started when a stage first does, so that
// they do not keep a server from being ready that has no such stage.
type filterInformers struct {
	informers.SharedInformerFactory

	mu      sync.Mutex
	run     context.Context // that of Start; nil before
	served  bool
	started bool
}

// Start implements informers.SharedInformerFactory.
func (i *filterInformers) Start(stop <-chan struct{}) {
	i.StartWithContext(wait.ContextForChannel(stop))
}

// StartWithContext implements informers.SharedInformerFactory.
func (i *filterInformers) StartWithContext(ctx context.Context) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.run = ctx
	i.startServed()
}

// setPaths takes the paths that the chain lists.
func (i *filterInformers) setPaths(paths []string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.served = i.served || slices.Contains(paths, legacyAPI)
	i.startServed()
}

func (i *filterInformers) startServed() {
	if i.served && !i.started && i.run != nil {
		i.started = true
		i.SharedInformerFactory.StartWithContext(i.run)
	}
}

// WaitForCacheSync implements informers.SharedInformerFactory. Informers that are to be
// started, and are not yet, have not synced; those whose APIs no stage serves are left out.
func (i *filterInformers) WaitForCacheSync(stop <-chan struct{}) map[reflect.Type]bool {
	i.mu.Lock()
	pending := i.served && !i.started
	i.mu.Unlock()
	if pending {
		return map[reflect.Type]bool{reflect.TypeFor[informers.SharedInformerFactory](): false}
	}
	return i.SharedInformerFactory.WaitForCacheSync(stop)
}
