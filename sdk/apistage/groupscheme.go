package apistage

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/registry/rest"
)

// groupScheme is the scheme of a group, with what follows from it.
type groupScheme struct {
	*runtime.Scheme
	codecs serializer.CodecFactory
	// stored is the group version in which objects are stored.
	stored schema.GroupVersion
	// own is set if the types of Resources are to be registered.
	own bool
}

func (g Group) newScheme() (*groupScheme, error) {
	stored, err := schema.ParseGroupVersion(g.APIVersion)
	if err != nil || stored.Group == "" || stored.Version == "" {
		return nil, fmt.Errorf("Group.APIVersion is %q, want GROUP/VERSION", g.APIVersion)
	}
	if len(g.Resources) == 0 {
		return nil, errors.New("Group.Resources is empty")
	}
	s := &groupScheme{Scheme: runtime.NewScheme(), stored: stored, own: g.AddToScheme == nil}
	addGenericTypes(s.Scheme)
	if g.AddToScheme != nil {
		if err := g.AddToScheme(s.Scheme); err != nil {
			return nil, err
		}
	}
	metav1.AddToGroupVersion(s.Scheme, stored)
	s.AddKnownTypes(stored, g.Types...)
	for _, resource := range g.Resources {
		if err := resource.register(s); err != nil {
			return nil, err
		}
	}
	s.addInternal(autoscalingv1.SchemeGroupVersion)
	for _, version := range s.versions() {
		s.addInternal(version)
	}
	if err := s.addIdentities(); err != nil {
		return nil, err
	}
	s.codecs = serializer.NewCodecFactory(s.Scheme)
	return s, nil
}

// addGenericTypes registers what every server needs.
func addGenericTypes(scheme *runtime.Scheme) {
	v1 := schema.GroupVersion{Version: "v1"}
	metav1.AddToGroupVersion(scheme, v1)
	scheme.AddUnversionedTypes(v1, &metav1.Status{}, &metav1.APIVersions{}, &metav1.APIGroupList{}, &metav1.APIGroup{},
		&metav1.APIResourceList{})
	scheme.AddKnownTypes(autoscalingv1.SchemeGroupVersion, &autoscalingv1.Scale{})
}

// versions are those of the group, the preferred one first.
func (s *groupScheme) versions() []schema.GroupVersion {
	return s.PrioritizedVersionsForGroup(s.stored.Group)
}

// versionsOf are the versions in which a kind is known, the one in which it is stored
// first.
func (s *groupScheme) versionsOf(kind string) []schema.GroupVersion {
	var versions []schema.GroupVersion
	for _, v := range s.versions() {
		if s.Recognizes(v.WithKind(kind)) {
			versions = append(versions, v)
		}
	}
	if i := slices.Index(versions, s.stored); i > 0 {
		versions = slices.Insert(slices.Delete(versions, i, i+1), 0, s.stored)
	}
	return versions
}

// addInternal takes the types of gv for those of the internal version, which Kubernetes'
// handlers work with, if there are no others.
func (s *groupScheme) addInternal(gv schema.GroupVersion) {
	internal := schema.GroupVersion{Group: gv.Group, Version: runtime.APIVersionInternal}
	for kind, t := range s.KnownTypes(gv) {
		if s.Recognizes(internal.WithKind(kind)) || t.PkgPath() == metaPackage {
			continue
		}
		if object, ok := reflect.New(t).Interface().(runtime.Object); ok {
			s.AddKnownTypeWithName(internal.WithKind(kind), object)
		}
	}
}

// addIdentities lets the scheme convert a type that is of two versions to itself, which
// admission does with what webhooks and policies have changed.
func (s *groupScheme) addIdentities() error {
	for gvk, t := range s.AllKnownTypes() {
		object, ok := reflect.New(t).Interface().(runtime.Object)
		if gvk.Version != runtime.APIVersionInternal || !ok || !s.isStored(object) {
			continue
		}
		err := s.AddConversionFunc(object, object, func(from, to any, _ conversion.Scope) error {
			copied := from.(runtime.Object).DeepCopyObject()
			reflect.ValueOf(to).Elem().Set(reflect.ValueOf(copied).Elem())
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

var metaPackage = reflect.TypeFor[metav1.ObjectMeta]().PkgPath()

// addHub registers an object of a Resource and its list: as of the group's version, if
// the author has no scheme, and as internal ones, if the scheme has none.
func (s *groupScheme) addHub(object, list runtime.Object) error {
	if s.own {
		s.AddKnownTypes(s.stored, object, list)
	}
	for _, o := range []runtime.Object{object, list} {
		kinds, _, err := s.ObjectKinds(o)
		if err != nil {
			return fmt.Errorf("%T is not in the scheme: %w", o, err)
		}
		internal := schema.GroupVersionKind{Group: s.stored.Group, Version: runtime.APIVersionInternal, Kind: kinds[0].Kind}
		if !s.Recognizes(internal) {
			s.AddKnownTypeWithName(internal, o)
		}
		if hub, err := s.New(internal); err != nil || reflect.TypeOf(hub) != reflect.TypeOf(o) {
			return fmt.Errorf("%T is given as a resource, but %T is the scheme's internal type of %s", o, hub, internal.Kind)
		}
	}
	return nil
}

// kindOf returns the kind of a registered object.
func (s *groupScheme) kindOf(object runtime.Object) (string, error) {
	kinds, _, err := s.ObjectKinds(object)
	if err != nil {
		return "", err
	}
	return kinds[0].Kind, nil
}

// types are the types of which there have to be OpenAPI definitions.
func (s *groupScheme) types() []reflect.Type {
	var types []reflect.Type
	for gvk, t := range s.AllKnownTypes() {
		if gvk.Group == s.stored.Group && gvk.Version != runtime.APIVersionInternal {
			types = append(types, t)
		}
	}
	slices.SortFunc(types, func(a, b reflect.Type) int { return strings.Compare(a.String(), b.String()) })
	return types
}

// protobufMarshaler is what Kubernetes' serializer needs.
type protobufMarshaler interface {
	MarshalTo(data []byte) (int, error)
	Unmarshal(data []byte) error
}

// hasProtobuf reports whether all types of the group have a form in protobuf.
func (s *groupScheme) hasProtobuf() bool {
	for _, t := range s.types() {
		if t.PkgPath() == metaPackage {
			continue
		}
		if _, ok := reflect.New(t).Interface().(protobufMarshaler); !ok {
			return false
		}
	}
	return true
}

// serves reports whether a storage's own kind is in a version of the group, or is of
// another group.
func (s *groupScheme) serves(version schema.GroupVersion, storage rest.Storage) bool {
	if _, ok := storage.(rest.GroupVersionKindProvider); ok {
		return true
	}
	kinds, _, err := s.ObjectKinds(storage.New())
	return err != nil || kinds[0].Group != version.Group || s.Recognizes(version.WithKind(kinds[0].Kind))
}

// isStored reports whether objects of this type are stored as they are.
func (s *groupScheme) isStored(object runtime.Object) bool {
	kinds, _, err := s.ObjectKinds(object)
	return err == nil && slices.ContainsFunc(kinds, func(k schema.GroupVersionKind) bool {
		return k.Version != runtime.APIVersionInternal
	})
}
