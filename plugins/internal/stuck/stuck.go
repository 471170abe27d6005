// Package stuck has definitions of custom resources whose deletion does not go on looked at again.
//
// Kubernetes' finalizer gives up when another has written the status of a definition, and expects to be called for that: it is not, if the
// other has changed the condition Terminating alone. In one process there is no other. Here two processes of the stage finalize while
// one takes the place of the other, and the one that goes on may have given up.
package stuck

import (
	"context"
	"encoding/json"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsapiserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	client "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	listers "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/tools/cache"

	"github.com/catena-dev/catena/sdk"
)

const (
	// lookEvery is how often deleted definitions are looked at, while there are some.
	lookEvery = 5 * time.Second
	// firstAfter is how long a definition may be deleted without a change before it is touched for the first time,
	// lastAfter for the later ones.
	firstAfter = 15 * time.Second
	lastAfter  = 5 * time.Minute
	// touchedAnnotation is what is changed: it says when.
	touchedAnnotation = "extensions.catena.dev/finalize-again"
)

// TouchDefinitions adds a post-start hook to the server which touches such definitions, by an annotation, until the
// stage drains: the process that goes on does it then.
func TouchDefinitions(env *sdk.Env, server *apiextensionsapiserver.CustomResourceDefinitions, crds client.CustomResourceDefinitionInterface) error {
	informer := server.Informers.Apiextensions().V1().CustomResourceDefinitions()
	deleted := make(chan struct{}, 1)
	see := func(object any) {
		if crd, ok := object.(*apiextensionsv1.CustomResourceDefinition); ok && isFinalized(crd) {
			select {
			case deleted <- struct{}{}:
			default:
			}
		}
	}
	handler := cache.ResourceEventHandlerFuncs{AddFunc: see, UpdateFunc: func(_, object any) { see(object) }}
	if _, err := informer.Informer().AddEventHandler(handler); err != nil {
		return err
	}
	return server.GenericAPIServer.AddPostStartHook("finalize-again", func(hook genericapiserver.PostStartHookContext) error {
		go func() {
			s := definitions{lister: informer.Lister()}
			for {
				var look <-chan time.Time
				if len(s.known) > 0 {
					look = time.After(lookEvery)
				}
				select {
				case <-deleted:
				case <-env.Draining():
					return
				case <-hook.Done():
					return
				case <-look:
				}
				for _, name := range s.look(time.Now()) {
					if err := touch(hook, crds, name); err != nil && hook.Err() == nil && !apierrors.IsNotFound(err) {
						env.Log.Warn("a definition whose deletion does not go on could not be touched", "definition", name, "error", err)
					}
				}
			}
		}()
		return nil
	})
}

// definitions are those that are deleted.
type definitions struct {
	lister listers.CustomResourceDefinitionLister
	known  map[types.UID]*definition
}

type definition struct {
	version string
	since   time.Time // of this version
	wait    time.Duration
}

// look returns the names of those that are to be touched now.
func (s *definitions) look(now time.Time) (names []string) {
	all, _ := s.lister.List(labels.Everything()) // it reads memory, and cannot fail
	known := map[types.UID]*definition{}
	for _, crd := range all {
		if !isFinalized(crd) {
			continue
		}
		d := s.known[crd.UID]
		if d == nil {
			d = &definition{wait: firstAfter}
		}
		known[crd.UID] = d
		if d.version != crd.ResourceVersion {
			d.version, d.since = crd.ResourceVersion, now
		}
		if now.Sub(d.since) >= d.wait {
			d.since, d.wait = now, min(2*d.wait, lastAfter)
			names = append(names, crd.Name)
		}
	}
	s.known = known
	return names
}

// isFinalized reports whether a definition is deleted, and waits for Kubernetes' finalizer.
func isFinalized(crd *apiextensionsv1.CustomResourceDefinition) bool {
	return !crd.DeletionTimestamp.IsZero() && apihelpers.CRDHasFinalizer(crd, apiextensionsv1.CustomResourceCleanupFinalizer)
}

// touch changes a definition in what is not in use.
func touch(ctx context.Context, crds client.CustomResourceDefinitionInterface, name string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{touchedAnnotation: time.Now().UTC().Format(time.RFC3339)}}})
	if err == nil {
		_, err = crds.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	}
	return err
}
