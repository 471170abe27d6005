package apistage

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/generic"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
)

// Object is what the type of a kind has to be: a pointer to a struct that embeds
// metav1.TypeMeta and metav1.ObjectMeta, with DeepCopyObject.
type Object interface {
	runtime.Object
	metav1.Object
}

// Kind is a resource whose objects are in Catena's store. Only List is required; every
// function can be nil. T is the type of the internal version, if the scheme has one,
// and otherwise the one in which objects are stored.
type Kind[T Object] struct {
	// List is an empty list of the kind's objects: &notes.NoteList{}.
	List runtime.Object
	// Plural and Singular are the names in paths and on command lines: by default the
	// kind in small letters, with an s for the plural.
	Plural, Singular string
	// ShortNames and Categories are further names for kubectl.
	ShortNames, Categories []string
	// ClusterScoped objects have no namespace.
	ClusterScoped bool

	// Default fills in what a client or an old object in the store leaves out. It is
	// for kinds without an internal type; others have defaults in their scheme.
	Default func(T)
	// Prepare changes an object before it is validated and stored; old is nil when it
	// is created.
	Prepare func(ctx context.Context, object, old T)
	// Validate returns what is wrong with an object; old is nil when it is created.
	// Its metadata have been validated.
	Validate func(ctx context.Context, object, old T) field.ErrorList
	// Warnings returns what clients are to be told about a valid object.
	Warnings func(ctx context.Context, object, old T) []string

	// Status gives the kind the subresource status: the field Status of T is changed
	// there, and there alone.
	Status bool
	// Scale gives it the subresource scale.
	Scale *Scale[T]
	// Subresources are further ones by name: Action, Connect or storage of your own.
	Subresources map[string]Subresource
	// Columns are shown by kubectl get between the name and the age.
	Columns []Column[T]
	// Fields are what field selectors can select by, besides name and namespace. The
	// keys are the labels, such as spec.color.
	Fields map[string]func(T) string

	// Storage replaces the store by storage of the author's own. It has to apply the
	// strategy, with rest.BeforeCreate and rest.BeforeUpdate, for the functions above to
	// be called. Status needs the store.
	Storage func(*Setup, Strategy) (rest.StandardStorage, error)
	// Customize is the last word on Kubernetes' registry before it is used.
	Customize func(*Setup, *genericregistry.Store) error
}

func (k Kind[T]) new() T { return reflect.New(reflect.TypeFor[T]().Elem()).Interface().(T) }

func (k Kind[T]) usesStore() bool { return k.Storage == nil }

func (k Kind[T]) register(scheme *groupScheme) error {
	if t := reflect.TypeFor[T](); t.Kind() != reflect.Pointer || t.Elem().Kind() != reflect.Struct {
		return fmt.Errorf("%v is not a pointer to a struct", t)
	}
	if k.List == nil {
		return fmt.Errorf("Kind[%v].List is nil", reflect.TypeFor[T]())
	}
	if err := scheme.addHub(k.new(), k.List); err != nil {
		return err
	}
	kind, err := scheme.kindOf(k.new())
	if err != nil {
		return err
	}
	if k.Default != nil {
		if !scheme.isStored(k.new()) {
			return fmt.Errorf("Kind[%v].Default: it has an internal type; register defaults in the scheme", reflect.TypeFor[T]())
		}
		scheme.AddTypeDefaultingFunc(k.new(), func(object any) { k.Default(object.(T)) })
	}
	for _, v := range scheme.versionsOf(kind) {
		if err := scheme.AddFieldLabelConversionFunc(v.WithKind(kind), k.selectable); err != nil {
			return err
		}
	}
	return nil
}

// selectable accepts the labels of field selectors.
func (k Kind[T]) selectable(label, value string) (string, string, error) {
	if _, ok := k.Fields[label]; ok || label == "metadata.name" || label == "metadata.namespace" {
		return label, value, nil
	}
	known := slices.Sorted(maps.Keys(k.Fields))
	return "", "", fmt.Errorf("%q is not a known field selector: only %s", label,
		strings.Join(append([]string{"metadata.name", "metadata.namespace"}, known...), ", "))
}

// names fills in what the author has left out.
func (k Kind[T]) names(kind string) Kind[T] {
	if k.Singular == "" {
		k.Singular = strings.ToLower(kind)
	}
	if k.Plural == "" {
		k.Plural = k.Singular + "s"
	}
	return k
}

func (k Kind[T]) storage(setup *Setup) (map[string]rest.Storage, error) {
	kinds, _, err := setup.Scheme.ObjectKinds(k.new())
	if err != nil {
		return nil, err
	}
	k = k.names(kinds[0].Kind)
	storages, err := k.storages(setup, kinds[0].Kind)
	if err != nil {
		return nil, fmt.Errorf("resource %q: %w", k.Plural, err)
	}
	return storages, nil
}

func (k Kind[T]) storages(setup *Setup, kind string) (map[string]rest.Storage, error) {
	strategy := newStrategy(k, setup.Scheme, setup.GroupVersion.Group)
	main, err := k.main(setup, strategy)
	if err != nil {
		return nil, err
	}
	storages := map[string]rest.Storage{k.Plural: newKindREST(main, kubectlNames{k.ShortNames, k.Categories}, k.Singular, strategy)}
	if k.Status {
		if storages[k.Plural+"/status"], err = newStatusREST(main, strategy); err != nil {
			return nil, err
		}
	}
	if k.Scale != nil {
		storages[k.Plural+"/scale"] = &scaleREST[T]{
			store: main, scale: *k.Scale, versions: setup.versions(kind),
			resource: schema.GroupResource{Group: setup.GroupVersion.Group, Resource: k.Plural},
		}
	}
	return storages, addSubresources(storages, setup, k.Plural, main, k.Subresources)
}

// main returns what has the objects.
func (k Kind[T]) main(setup *Setup, strategy *strategy[T]) (rest.StandardStorage, error) {
	if k.Storage != nil {
		return k.Storage(setup, strategy)
	}
	return k.registry(setup, strategy)
}

// registry returns Kubernetes' registry for the kind.
func (k Kind[T]) registry(setup *Setup, strategy *strategy[T]) (*genericregistry.Store, error) {
	group := setup.GroupVersion.Group
	store := &genericregistry.Store{
		NewFunc:                   func() runtime.Object { return k.new() },
		NewListFunc:               func() runtime.Object { return reflect.New(reflect.TypeOf(k.List).Elem()).Interface().(runtime.Object) },
		PredicateFunc:             strategy.Predicate,
		DefaultQualifiedResource:  schema.GroupResource{Group: group, Resource: k.Plural},
		SingularQualifiedResource: schema.GroupResource{Group: group, Resource: k.Singular},
		CreateStrategy:            strategy,
		UpdateStrategy:            strategy,
		DeleteStrategy:            strategy,
		ResetFieldsStrategy:       strategy,
		TableConvertor:            strategy,
	}
	if k.Customize != nil {
		if err := k.Customize(setup, store); err != nil {
			return nil, err
		}
	}
	return store, store.CompleteWithOptions(&generic.StoreOptions{RESTOptions: setup.Config.RESTOptionsGetter,
		AttrFunc: strategy.attributes})
}
