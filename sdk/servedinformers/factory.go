// Package servedinformers is for servers whose informers may watch what the chain does not serve: a chain without the stage core
// has no services, and core of an older release lacks what is new in this one. One such informer would keep a server
// from getting ready.
package servedinformers

import (
	"context"
	"encoding/json"
	"reflect"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// New returns a factory whose informers of resources that the server of client does not serve count as synced: they have
// everything that there is. They still do when it begins to serve them, as core of a newer release does: an informer
// that has synced stays so, and tries to list again after up to a minute only, for which the server is not to be unready.
func New(factory informers.SharedInformerFactory, client rest.Interface) informers.SharedInformerFactory {
	return &served{SharedInformerFactory: factory, client: client, kinds: map[schema.GroupVersion]kinds{}, missing: map[reflect.Type]bool{}}
}

type served struct {
	informers.SharedInformerFactory
	client rest.Interface

	mu    sync.Mutex
	kinds map[schema.GroupVersion]kinds
	// missing has the types that the server has not served at some time.
	missing map[reflect.Type]bool
}

// kinds are those of a group version. They are not known if the server is incomplete, or does not respond.
type kinds struct {
	names []string
	known bool
	at    time.Time
}

// knownFor is how long a response about a group version is taken for true, and how long it may take.
const knownFor = time.Second

// WaitForCacheSync implements informers.SharedInformerFactory.
func (s *served) WaitForCacheSync(stop <-chan struct{}) map[reflect.Type]bool {
	synced := s.SharedInformerFactory.WaitForCacheSync(stop)
	for object, ok := range synced {
		if !ok {
			synced[object] = s.wasMissing(object)
		}
	}
	return synced
}

// wasMissing reports whether the server has no resource of a type, or had none before.
func (s *served) wasMissing(object reflect.Type) bool {
	s.mu.Lock()
	missing := s.missing[object]
	s.mu.Unlock()
	if missing || !s.isMissing(object) {
		return missing
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.missing[object] = true
	return true
}

// isMissing reports whether the server has no resource of a type.
func (s *served) isMissing(object reflect.Type) bool {
	if object.Kind() != reflect.Pointer {
		return false
	}
	example, ok := reflect.New(object.Elem()).Interface().(runtime.Object)
	if !ok {
		return false
	}
	gvks, _, err := scheme.Scheme.ObjectKinds(example)
	if err != nil || len(gvks) == 0 {
		return false
	}
	now := s.kindsOf(gvks[0].GroupVersion())
	return now.known && !slices.Contains(now.names, gvks[0].Kind)
}

// kindsOf asks the server. Only a clear "not found" counts as none; a server that is incomplete reports that it is
// unavailable.
func (s *served) kindsOf(gv schema.GroupVersion) kinds {
	s.mu.Lock()
	defer s.mu.Unlock()
	if last, ok := s.kinds[gv]; ok && time.Since(last.at) < knownFor {
		return last
	}
	ctx, cancel := context.WithTimeout(context.Background(), knownFor)
	defer cancel()
	// Not the discovery client's method for it, which takes a missing v1 for an empty one.
	body, err := s.client.Get().AbsPath(discoveryPath(gv)).SetHeader("Accept", "application/json").DoRaw(ctx)
	now := kinds{at: time.Now()}
	var list metav1.APIResourceList
	switch {
	case apierrors.IsNotFound(err):
		now.known = true
	case err == nil && json.Unmarshal(body, &list) == nil:
		now.known = true
		for _, r := range list.APIResources {
			now.names = append(now.names, r.Kind)
		}
	}
	s.kinds[gv] = now
	return now
}

func discoveryPath(gv schema.GroupVersion) string {
	if gv.Group == "" {
		return "/api/" + gv.Version
	}
	return "/apis/" + gv.Group + "/" + gv.Version
}
