package apistage

import (
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// kubectlNames are names by which kubectl finds a resource.
type kubectlNames struct{ short, categories []string }

func (n kubectlNames) ShortNames() []string { return n.short }
func (n kubectlNames) Categories() []string { return n.categories }

// storedREST is a kind in the store.
type storedREST struct {
	*genericregistry.Store
	kubectlNames
}

// ownREST is a kind in storage of the author's, with what Kubernetes' registry tells
// discovery and the handlers by itself.
type ownREST struct {
	rest.StandardStorage
	kubectlNames
	singular string
	strategy resettable
}

type resettable interface {
	rest.Scoper
	GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set
}

func (r *ownREST) NamespaceScoped() bool   { return r.strategy.NamespaceScoped() }
func (r *ownREST) GetSingularName() string { return r.singular }

func (r *ownREST) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return r.strategy.GetResetFields()
}

// ReadinessCheck is that of the storage, if it has one.
func (r *ownREST) ReadinessCheck() error {
	if ready, ok := r.StandardStorage.(rest.StorageWithReadiness); ok {
		return ready.ReadinessCheck()
	}
	return nil
}

// newKindREST returns storage as the resource itself.
func newKindREST(storage rest.StandardStorage, names kubectlNames, singular string, strategy resettable) rest.Storage {
	if store, ok := storage.(*genericregistry.Store); ok {
		return &storedREST{store, names}
	}
	return &ownREST{StandardStorage: storage, kubectlNames: names, singular: singular, strategy: strategy}
}
