package apistage

import (
	"context"
	"fmt"
	"net/http"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"
)

// Subresource makes the storage of a subresource of a resource, whose objects are in store.
// What the storage can do decides about its verbs: an implementation of rest.Getter can
// be read, one of rest.NamedCreater takes POST, one of rest.Connecter any method.
type Subresource func(setup *Setup, store rest.StandardStorage) (rest.Storage, error)

// Call is one request for a subresource that Action or Connect serves.
type Call[T Object] struct {
	*Setup
	// Store has the objects of the kind, for changes that the call makes.
	Store rest.StandardStorage
	// Object is the one that the request names, as it is at the request's beginning.
	Object T
}

// Action is a verb of a kind's own: POST .../NAME/VERB with an In; the response is
// the object that do returns. In has to be in the scheme. Admission has seen it; if
// DryRun is among its options, do must change nothing.
func Action[T, In Object](do func(ctx context.Context, call Call[T], in In, options *metav1.CreateOptions) (runtime.Object, error)) Subresource {
	return func(setup *Setup, store rest.StandardStorage) (rest.Storage, error) {
		if _, _, err := setup.Scheme.ObjectKinds(newOf[In]()); err != nil {
			return nil, fmt.Errorf("what the action takes is not in the scheme: %w", err)
		}
		return &action[T, In]{setup, store, do}, nil
	}
}

type action[T, In Object] struct {
	setup *Setup
	store rest.StandardStorage
	do    func(context.Context, Call[T], In, *metav1.CreateOptions) (runtime.Object, error)
}

func (*action[T, In]) New() runtime.Object { return newOf[In]() }
func (*action[T, In]) Destroy()            {}

func (a *action[T, In]) Create(ctx context.Context, name string, object runtime.Object, validate rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	if validate != nil {
		if err := validate(ctx, object.DeepCopyObject()); err != nil {
			return nil, err
		}
	}
	parent, err := a.store.Get(ctx, name, &metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return a.do(ctx, Call[T]{a.setup, a.store, parent.(T)}, object.(In), options)
}

// Connect serves requests with any of the methods for .../NAME/SUBRESOURCE by a
// handler of net/http: downloads, streams, upgrades.
func Connect[T Object](serve func(call Call[T], w http.ResponseWriter, r *http.Request), methods ...string) Subresource {
	return func(setup *Setup, store rest.StandardStorage) (rest.Storage, error) {
		return &connect[T]{setup, store, serve, methods}, nil
	}
}

type connect[T Object] struct {
	setup   *Setup
	store   rest.StandardStorage
	serve   func(Call[T], http.ResponseWriter, *http.Request)
	methods []string
}

func (c *connect[T]) New() runtime.Object                             { return newOf[T]() }
func (*connect[T]) Destroy()                                          {}
func (*connect[T]) NewConnectOptions() (runtime.Object, bool, string) { return nil, false, "" }
func (c *connect[T]) ConnectMethods() []string                        { return c.methods }

func (c *connect[T]) Connect(ctx context.Context, name string, _ runtime.Object, _ rest.Responder) (http.Handler, error) {
	object, err := c.store.Get(ctx, name, &metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.serve(Call[T]{c.setup, c.store, object.(T)}, w, r)
	}), nil
}

func newOf[T Object]() T { return reflect.New(reflect.TypeFor[T]().Elem()).Interface().(T) }

// Replace is for updates of a registry by an object that has been changed.
func Replace(object runtime.Object) rest.UpdatedObjectInfo {
	return rest.DefaultUpdatedObjectInfo(object)
}

// addSubresources adds the storages of a resource's subresources.
func addSubresources(storages map[string]rest.Storage, setup *Setup, plural string, main rest.StandardStorage, subresources map[string]Subresource) error {
	for name, make := range subresources {
		storage, err := make(setup, main)
		if err != nil {
			return fmt.Errorf("subresource %q: %w", name, err)
		}
		storages[plural+"/"+name] = storage
	}
	return nil
}
