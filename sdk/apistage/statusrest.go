package apistage

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// statusREST is the subresource status of a Kind.
type statusREST[T Object] struct {
	store    *genericregistry.Store
	strategy *statusStrategy[T]
}

func newStatusREST[T Object](main rest.StandardStorage, s *strategy[T]) (*statusREST[T], error) {
	store, ok := main.(*genericregistry.Store)
	if !ok {
		return nil, errors.New("subresource status: only kinds in the store have it")
	}
	if _, ok := reflect.TypeFor[T]().Elem().FieldByName(statusField); !ok {
		return nil, fmt.Errorf("subresource status: %v has no field %s", reflect.TypeFor[T](), statusField)
	}
	status := *store
	strategy := &statusStrategy[T]{s}
	status.UpdateStrategy, status.ResetFieldsStrategy = strategy, strategy
	return &statusREST[T]{store: &status, strategy: strategy}, nil
}

func (r *statusREST[T]) New() runtime.Object { return r.store.New() }

// Destroy leaves the storage to the resource.
func (r *statusREST[T]) Destroy() {}

func (r *statusREST[T]) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	return r.store.Get(ctx, name, options)
}

// Update never creates: there is no status of what is not there.
func (r *statusREST[T]) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo, create rest.ValidateObjectFunc, update rest.ValidateObjectUpdateFunc, _ bool, options *metav1.UpdateOptions) (runtime.Object, bool, error) {
	return r.store.Update(ctx, name, info, create, update, false, options)
}

func (r *statusREST[T]) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	return r.strategy.GetResetFields()
}

func (r *statusREST[T]) ConvertToTable(ctx context.Context, object, options runtime.Object) (*metav1.Table, error) {
	return r.store.ConvertToTable(ctx, object, options)
}

// statusStrategy takes of an update the status alone.
type statusStrategy[T Object] struct{ *strategy[T] }

func (s *statusStrategy[T]) PrepareForUpdate(_ context.Context, object, before runtime.Object) {
	o, old := object.(T), before.(T)
	// The entries of this update are among them.
	managed := o.GetManagedFields()
	result := old.DeepCopyObject().(T)
	copyField(result, o, statusField)
	reflect.ValueOf(o).Elem().Set(reflect.ValueOf(result).Elem())
	o.SetManagedFields(managed)
}

func (s *statusStrategy[T]) ValidateUpdate(ctx context.Context, object, before runtime.Object) field.ErrorList {
	return s.strategy.ValidateUpdate(ctx, object, before)
}

func (s *statusStrategy[T]) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	reset := []string{"metadata"}
	t := reflect.TypeFor[T]().Elem()
	for i := range t.NumField() {
		if f := t.Field(i); f.IsExported() && !isMeta(f) && f.Name != statusField {
			reset = append(reset, jsonName(f))
		}
	}
	return s.resetFields(reset...)
}
