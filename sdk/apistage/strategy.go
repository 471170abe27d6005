package apistage

import (
	"context"
	"fmt"
	"reflect"
	"strings"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/names"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// Strategy is what a Kind says about its objects, for storage of the author's own.
type Strategy interface {
	rest.RESTCreateStrategy
	rest.RESTUpdateStrategy
	rest.TableConvertor
	// Predicate tells which objects selectors select.
	Predicate(label labels.Selector, field fields.Selector) storage.SelectionPredicate
}

// strategy does for a Kind what the strategies of Kubernetes' registries do.
type strategy[T Object] struct {
	runtime.ObjectTyper
	names.NameGenerator
	rest.TableConvertor
	kind     Kind[T]
	versions []schema.GroupVersion
}

func newStrategy[T Object](kind Kind[T], scheme *runtime.Scheme, group string) *strategy[T] {
	return &strategy[T]{
		ObjectTyper: scheme, NameGenerator: names.SimpleNameGenerator, TableConvertor: Table(kind.Columns...),
		kind: kind, versions: scheme.PrioritizedVersionsForGroup(group),
	}
}

func (s *strategy[T]) NamespaceScoped() bool                       { return !s.kind.ClusterScoped }
func (*strategy[T]) AllowCreateOnUpdate(context.Context) bool      { return false }
func (*strategy[T]) AllowUnconditionalUpdate(context.Context) bool { return true }
func (*strategy[T]) Canonicalize(runtime.Object)                   {}

func (s *strategy[T]) PrepareForCreate(ctx context.Context, object runtime.Object) {
	o := object.(T)
	if s.kind.Status {
		copyField(o, s.kind.new(), statusField)
	}
	o.SetGeneration(1)
	var none T
	if s.kind.Prepare != nil {
		s.kind.Prepare(ctx, o, none)
	}
}

func (s *strategy[T]) PrepareForUpdate(ctx context.Context, object, before runtime.Object) {
	o, old := object.(T), before.(T)
	if s.kind.Status {
		copyField(o, old, statusField)
	}
	if s.kind.Prepare != nil {
		s.kind.Prepare(ctx, o, old)
	}
	o.SetGeneration(old.GetGeneration())
	if s.changed(o, old) {
		o.SetGeneration(old.GetGeneration() + 1)
	}
}

// changed reports whether what the user wants has changed: all but metadata and status.
func (s *strategy[T]) changed(object, old T) bool {
	a, b := reflect.ValueOf(object).Elem(), reflect.ValueOf(old).Elem()
	for i := range a.NumField() {
		f := a.Type().Field(i)
		if !f.IsExported() || isMeta(f) || s.kind.Status && f.Name == statusField {
			continue
		}
		if !apiequality.Semantic.DeepEqual(a.Field(i).Interface(), b.Field(i).Interface()) {
			return true
		}
	}
	return false
}

func (s *strategy[T]) Validate(ctx context.Context, object runtime.Object) field.ErrorList {
	o := object.(T)
	errs := validation.ValidateObjectMetaAccessor(o, !s.kind.ClusterScoped, validation.NameIsDNSSubdomain, field.NewPath("metadata"))
	var none T
	if s.kind.Validate != nil {
		errs = append(errs, s.kind.Validate(ctx, o, none)...)
	}
	return errs
}

func (s *strategy[T]) ValidateUpdate(ctx context.Context, object, before runtime.Object) field.ErrorList {
	o, old := object.(T), before.(T)
	errs := validation.ValidateObjectMetaAccessorUpdate(o, old, field.NewPath("metadata"))
	if s.kind.Validate != nil {
		errs = append(errs, s.kind.Validate(ctx, o, old)...)
	}
	return errs
}

func (s *strategy[T]) WarningsOnCreate(ctx context.Context, object runtime.Object) []string {
	var none T
	if s.kind.Warnings == nil {
		return nil
	}
	return s.kind.Warnings(ctx, object.(T), none)
}

func (s *strategy[T]) WarningsOnUpdate(ctx context.Context, object, before runtime.Object) []string {
	if s.kind.Warnings == nil {
		return nil
	}
	return s.kind.Warnings(ctx, object.(T), before.(T))
}

// GetResetFields tells server-side apply what an apply to the resource cannot set.
func (s *strategy[T]) GetResetFields() map[fieldpath.APIVersion]*fieldpath.Set {
	if !s.kind.Status {
		return nil
	}
	return s.resetFields("status")
}

func (s *strategy[T]) resetFields(names ...string) map[fieldpath.APIVersion]*fieldpath.Set {
	reset := map[fieldpath.APIVersion]*fieldpath.Set{}
	for _, v := range s.versions {
		set := fieldpath.NewSet()
		for _, name := range names {
			set.Insert(fieldpath.MakePathOrDie(name))
		}
		reset[fieldpath.APIVersion(v.String())] = set
	}
	return reset
}

// attributes are what selectors select by.
func (s *strategy[T]) attributes(object runtime.Object) (labels.Set, fields.Set, error) {
	o, ok := object.(T)
	if !ok {
		return nil, nil, fmt.Errorf("%T is not a %v", object, reflect.TypeFor[T]())
	}
	selectable := fields.Set{"metadata.name": o.GetName()}
	if !s.kind.ClusterScoped {
		selectable["metadata.namespace"] = o.GetNamespace()
	}
	for label, value := range s.kind.Fields {
		selectable[label] = value(o)
	}
	return o.GetLabels(), selectable, nil
}

func (s *strategy[T]) Predicate(label labels.Selector, field fields.Selector) storage.SelectionPredicate {
	return storage.SelectionPredicate{Label: label, Field: field, GetAttrs: s.attributes}
}

const statusField = "Status"

// copyField sets a field of to, both pointers to structs of one type.
func copyField(to, from any, name string) {
	reflect.ValueOf(to).Elem().FieldByName(name).Set(reflect.ValueOf(from).Elem().FieldByName(name))
}

func isMeta(f reflect.StructField) bool {
	return f.Anonymous && (f.Name == "TypeMeta" || f.Name == "ObjectMeta")
}

// jsonName is the name of a field in JSON; of an internal type it is Go's, in which the
// first letter is a capital.
func jsonName(f reflect.StructField) string {
	if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" {
		return name
	}
	return strings.ToLower(f.Name[:1]) + f.Name[1:]
}
