package kube

import (
	"maps"
	"slices"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/apiserver/pkg/endpoints/discovery"
	"k8s.io/client-go/tools/cache"
)

// customGroups puts the groups of custom resources into the list at /apis. Kubernetes' server leaves
// that to the aggregator, which a chain need not have; its aggregated discovery has them.
type customGroups struct {
	manager discovery.GroupManager

	mu sync.Mutex
	// served are the versions that each definition serves, by group and name.
	served map[string]map[string][]string
}

// follow keeps the list up to date with an informer of custom resource definitions.
func (g *customGroups) follow(crds cache.SharedIndexInformer) error {
	_, err := crds.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    g.set,
		UpdateFunc: func(_, crd any) { g.set(crd) },
		DeleteFunc: g.remove,
	})
	return err
}

func (g *customGroups) set(object any) {
	crd, ok := object.(*apiextensionsv1.CustomResourceDefinition)
	if !ok {
		return
	}
	var versions []string
	if apihelpers.IsCRDConditionTrue(crd, apiextensionsv1.Established) {
		for _, v := range crd.Spec.Versions {
			if v.Served {
				versions = append(versions, v.Name)
			}
		}
	}
	g.update(crd, versions)
}

func (g *customGroups) remove(object any) {
	if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = gone.Obj
	}
	if crd, ok := object.(*apiextensionsv1.CustomResourceDefinition); ok {
		g.update(crd, nil)
	}
}

func (g *customGroups) update(crd *apiextensionsv1.CustomResourceDefinition, versions []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	group := crd.Spec.Group
	before := g.versions(group)
	if g.served[group] == nil {
		g.served[group] = map[string][]string{}
	}
	g.served[group][crd.Name] = versions
	if len(versions) == 0 {
		delete(g.served[group], crd.Name)
	}
	switch now := g.versions(group); {
	case slices.Equal(now, before):
	case len(now) == 0:
		delete(g.served, group)
		g.manager.RemoveGroup(group)
	default:
		g.manager.AddGroup(apiGroup(group, now))
	}
}

// versions are those of a group, the best first.
func (g *customGroups) versions(group string) []string {
	set := map[string]bool{}
	for _, versions := range g.served[group] {
		for _, v := range versions {
			set[v] = true
		}
	}
	return slices.SortedFunc(maps.Keys(set), func(a, b string) int { return version.CompareKubeAwareVersionStrings(b, a) })
}

func apiGroup(name string, versions []string) metav1.APIGroup {
	group := metav1.APIGroup{Name: name}
	for _, v := range versions {
		group.Versions = append(group.Versions, metav1.GroupVersionForDiscovery{
			GroupVersion: schema.GroupVersion{Group: name, Version: v}.String(), Version: v,
		})
	}
	group.PreferredVersion = group.Versions[0]
	return group
}
