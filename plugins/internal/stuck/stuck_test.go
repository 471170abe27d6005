package stuck

import (
	"slices"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	listers "k8s.io/apiextensions-apiserver/pkg/client/listers/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// A deleted definition that does not change is touched, less and less often; one that does, or is not deleted, or not for the finalizer, is not.
func TestStuckDefinitions(t *testing.T) {
	t.Parallel()
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil)
	add := func(name, version string, deleted bool, finalizers ...string) {
		crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), ResourceVersion: version, Finalizers: finalizers}}
		if deleted {
			crd.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
		}
		if err := indexer.Add(crd); err != nil {
			t.Fatal(err)
		}
	}
	const finalizer = apiextensionsv1.CustomResourceCleanupFinalizer
	add("stuck", "1", true, finalizer)
	s := definitions{lister: listers.NewCustomResourceDefinitionLister(indexer)}
	begin := time.Unix(1000, 0)
	var touched []int
	for second := 0; second <= 300; second += 5 {
		if second == 200 {
			add("stuck", "2", true, finalizer) // somebody goes on with it
		}
		if names := s.look(begin.Add(time.Duration(second) * time.Second)); len(names) > 0 {
			touched = append(touched, second)
		}
	}
	if want := []int{15, 45, 105}; !slices.Equal(touched, want) {
		t.Errorf("touched after %v seconds, want %v", touched, want)
	}
	if err := indexer.Replace(nil, ""); err != nil {
		t.Fatal(err)
	}
	add("lives", "1", false, finalizer)
	add("held by others", "1", true, "example.com/x")
	if names := s.look(begin.Add(time.Hour)); len(names) > 0 || len(s.known) > 0 {
		t.Errorf("touched %q, known are %d", names, len(s.known))
	}
}
