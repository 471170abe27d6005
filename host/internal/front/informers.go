package front

import (
	"context"
	"slices"

	"k8s.io/client-go/informers"
)

// legacyAPI is a path that a server of the built-in Kubernetes APIs lists.
const legacyAPI = "/api/v1"

// neededInformers are the informers of the filters (RBAC and Node authorization,
// priority and fairness, service account tokens). They watch built-in APIs, so
// in a chain without a stage that serves these, none is started: it could never
// sync, and the server would never be ready.
type neededInformers struct {
	informers.SharedInformerFactory
	listedPaths func() []string
}

func (i neededInformers) needed() bool { return slices.Contains(i.listedPaths(), legacyAPI) }

func (i neededInformers) Start(stop <-chan struct{}) {
	if i.needed() {
		i.SharedInformerFactory.Start(stop)
	}
}

func (i neededInformers) StartWithContext(ctx context.Context) {
	if i.needed() {
		i.SharedInformerFactory.StartWithContext(ctx)
	}
}
