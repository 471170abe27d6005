package kube

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	apiextensionsapiserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/version"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	"k8s.io/apiserver/pkg/util/compatibility"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	aggregatorapiserver "k8s.io/kube-aggregator/pkg/apiserver"
	aggregatorscheme "k8s.io/kube-aggregator/pkg/apiserver/scheme"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/controlplane"
	"k8s.io/kubernetes/pkg/kubeapiserver"

	"github.com/catena-dev/catena/sdk"
	"github.com/catena-dev/catena/sdk/kubeversion"
)

// release is what this program has of Kubernetes, in a stage with certain kinds of objects.
func release(kinds []sdk.KubernetesKind) sdk.Kubernetes {
	effective := compatibility.DefaultBuildEffectiveVersion()
	o, flags := newFlags()
	k := sdk.Kubernetes{
		Release:                 kubeversion.Release(),
		EmulationVersion:        effective.EmulationVersion().String(),
		MinCompatibilityVersion: effective.MinCompatibilityVersion().String(),
		AdmissionPlugins:        o.Admission.GenericAdmission.Plugins.Registered(),
		Kinds:                   kinds,
	}
	flags.VisitAll(func(f *pflag.Flag) { k.Flags = append(k.Flags, f.Name) })
	for name, spec := range utilfeature.DefaultMutableFeatureGate.GetAll() {
		k.FeatureGates = append(k.FeatureGates, fmt.Sprintf("%s=%t", name, spec.Default))
	}
	slices.Sort(k.Flags)
	slices.Sort(k.FeatureGates)
	slices.Sort(k.AdmissionPlugins)
	return k
}

// CoreRelease is the release of Kubernetes in the stage core.
func CoreRelease() sdk.Kubernetes {
	config := kubeapiserver.NewStorageFactoryConfigEffectiveVersion(compatibility.DefaultBuildEffectiveVersion())
	overridden := map[schema.GroupResource]string{}
	for _, r := range config.ResourceEncodingOverrides {
		overridden[r.GroupResource()] = r.Version
	}
	kinds := kindsOf(legacyscheme.Scheme, controlplane.DefaultAPIResourceConfigSource())
	for i, kind := range kinds {
		plural, _ := meta.UnsafeGuessKindToResource(schema.GroupVersionKind{Group: kind.Group, Kind: kind.Kind})
		if version, ok := overridden[plural.GroupResource()]; ok && slices.Contains(kind.Versions, version) {
			kinds[i].StorageVersion = version
		}
	}
	return release(kinds)
}

// ExtensionsRelease is the release of Kubernetes in the stage extensions.
func ExtensionsRelease() sdk.Kubernetes {
	return release(kindsOf(apiextensionsapiserver.Scheme, apiextensionsapiserver.DefaultAPIResourceConfigSource()))
}

// AggregatorRelease is the release of Kubernetes in the stage aggregator.
func AggregatorRelease() sdk.Kubernetes {
	return release(kindsOf(aggregatorscheme.Scheme, aggregatorapiserver.DefaultAPIResourceConfigSource()))
}

var objectType = reflect.TypeFor[metav1.Object]()

// kindsOf are the kinds of objects in a scheme, in the order of their groups and names. Each is stored in the
// best version of its group in which it exists.
func kindsOf(scheme *runtime.Scheme, served *serverstorage.ResourceConfig) []sdk.KubernetesKind {
	types := scheme.AllKnownTypes()
	versions := map[schema.GroupKind][]string{}
	for gvk, goType := range types {
		if gvk.Version != runtime.APIVersionInternal && reflect.PointerTo(goType).Implements(objectType) {
			versions[gvk.GroupKind()] = append(versions[gvk.GroupKind()], gvk.Version)
		}
	}
	var kinds []sdk.KubernetesKind
	for gk := range versions {
		kind := sdk.KubernetesKind{Group: gk.Group, Kind: gk.Kind}
		for _, gv := range scheme.PrioritizedVersionsForGroup(gk.Group) {
			if !slices.Contains(versions[gk], gv.Version) {
				continue
			}
			kind.Versions = append(kind.Versions, gv.Version)
			plural, _ := meta.UnsafeGuessKindToResource(gv.WithKind(gk.Kind))
			if served.ResourceEnabled(plural) && !isRemoved(types[gv.WithKind(gk.Kind)]) {
				kind.Served = append(kind.Served, gv.Version)
			}
		}
		if len(kind.Versions) > 0 {
			kind.StorageVersion = kind.Versions[0]
			kinds = append(kinds, kind)
		}
	}
	slices.SortFunc(kinds, func(a, b sdk.KubernetesKind) int {
		return strings.Compare(a.Group+"/"+a.Kind, b.Group+"/"+b.Kind)
	})
	return kinds
}

// isRemoved reports whether objects of a type can be read from the store, and are not served any more.
func isRemoved(goType reflect.Type) bool {
	object, ok := reflect.New(goType).Interface().(interface{ APILifecycleRemoved() (major, minor int) })
	if !ok {
		return false
	}
	major, minor := object.APILifecycleRemoved()
	return !compatibility.DefaultBuildEffectiveVersion().EmulationVersion().LessThan(version.MajorMinor(uint(major), uint(minor)))
}
