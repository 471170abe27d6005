package apistage

import (
	"context"
	"fmt"
	"strings"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// Scale is the subresource scale of a Kind, for kubectl scale and autoscalers.
type Scale[T Object] struct {
	// Replicas is where in an object the wanted number of replicas is.
	Replicas func(T) *int32
	// Path is where that is in JSON: spec.replicas if empty.
	Path string
	// Current returns the actual number of replicas, and the label selector of what is
	// counted, as text.
	Current func(T) (replicas int32, selector string)
}

func (s Scale[T]) of(o T) *autoscalingv1.Scale {
	scale := &autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{
		Name: o.GetName(), Namespace: o.GetNamespace(), UID: o.GetUID(),
		ResourceVersion: o.GetResourceVersion(), CreationTimestamp: o.GetCreationTimestamp(),
	}}
	scale.Spec.Replicas = *s.Replicas(o)
	if s.Current != nil {
		scale.Status.Replicas, scale.Status.Selector = s.Current(o)
	}
	return scale
}

// scaleREST is Kubernetes' for deployments, for any kind.
type scaleREST[T Object] struct {
	store    rest.StandardStorage
	resource schema.GroupResource
	scale    Scale[T]
	versions []schema.GroupVersion
}

func (*scaleREST[T]) GroupVersionKind(schema.GroupVersion) schema.GroupVersionKind {
	return autoscalingv1.SchemeGroupVersion.WithKind("Scale")
}

func (*scaleREST[T]) New() runtime.Object { return &autoscalingv1.Scale{} }

// Destroy leaves the storage to the resource.
func (*scaleREST[T]) Destroy() {}

func (r *scaleREST[T]) Get(ctx context.Context, name string, options *metav1.GetOptions) (runtime.Object, error) {
	object, err := r.store.Get(ctx, name, options)
	if err != nil {
		return nil, err
	}
	return r.scale.of(object.(T)), nil
}

func (r *scaleREST[T]) ConvertToTable(ctx context.Context, object, options runtime.Object) (*metav1.Table, error) {
	return r.store.ConvertToTable(ctx, object, options)
}

func (r *scaleREST[T]) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo, create rest.ValidateObjectFunc, update rest.ValidateObjectUpdateFunc, _ bool, options *metav1.UpdateOptions) (runtime.Object, bool, error) {
	object, _, err := r.store.Update(ctx, name, &scaled[T]{UpdatedObjectInfo: info, rest: r, name: name},
		func(ctx context.Context, o runtime.Object) error { return create(ctx, r.scale.of(o.(T))) },
		func(ctx context.Context, o, old runtime.Object) error {
			return update(ctx, r.scale.of(o.(T)), r.scale.of(old.(T)))
		}, false, options)
	if err != nil {
		return nil, false, err
	}
	return r.scale.of(object.(T)), false, nil
}

// paths says where the replicas are in each version.
func (r *scaleREST[T]) paths() managedfields.ResourcePathMappings {
	path := r.scale.Path
	if path == "" {
		path = "spec.replicas"
	}
	var parts []any
	for _, part := range strings.Split(path, ".") {
		parts = append(parts, part)
	}
	paths := managedfields.ResourcePathMappings{}
	for _, v := range r.versions {
		paths[v.String()] = fieldpath.MakePathOrDie(parts...)
	}
	return paths
}

// scaled makes of an update of a scale one of its object.
type scaled[T Object] struct {
	rest.UpdatedObjectInfo
	rest *scaleREST[T]
	name string
}

func (s *scaled[T]) UpdatedObject(ctx context.Context, before runtime.Object) (runtime.Object, error) {
	o := before.DeepCopyObject().(T)
	if o.GetResourceVersion() == "" {
		return nil, apierrors.NewNotFound(s.rest.resource, s.name)
	}
	fields := managedfields.NewScaleHandler(o.GetManagedFields(), s.rest.versions[0], s.rest.paths())
	old := s.rest.scale.of(o)
	var err error
	if old.ManagedFields, err = fields.ToSubresource(); err != nil {
		return nil, err
	}
	updated, err := s.UpdatedObjectInfo.UpdatedObject(ctx, old)
	if err != nil {
		return nil, err
	}
	scale, ok := updated.(*autoscalingv1.Scale)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("want a Scale, got %T", updated))
	}
	if scale.Spec.Replicas < 0 {
		return nil, apierrors.NewInvalid(autoscalingv1.SchemeGroupVersion.WithKind("Scale").GroupKind(), s.name, field.ErrorList{
			field.Invalid(field.NewPath("spec", "replicas"), scale.Spec.Replicas, "must be greater than or equal to 0")})
	}
	if scale.UID != "" && scale.UID != o.GetUID() {
		return nil, apierrors.NewConflict(s.rest.resource, s.name,
			fmt.Errorf("the UID in the precondition is %s, that of the object is %s", scale.UID, o.GetUID()))
	}
	*s.rest.scale.Replicas(o) = scale.Spec.Replicas
	o.SetResourceVersion(scale.ResourceVersion)
	entries, err := fields.ToParent(scale.ManagedFields)
	o.SetManagedFields(entries)
	return o, err
}
