package kube

import (
	"slices"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints/discovery"
)

// listedGroups is a group manager that keeps what it is told.
type listedGroups struct {
	discovery.GroupManager
	groups map[string][]string
}

func (l *listedGroups) AddGroup(g metav1.APIGroup) {
	l.groups[g.Name] = nil
	for _, v := range g.Versions {
		l.groups[g.Name] = append(l.groups[g.Name], v.Version)
	}
}

func (l *listedGroups) RemoveGroup(name string) { delete(l.groups, name) }

func TestGroupsFollowDefinitions(t *testing.T) {
	t.Parallel()
	crd := func(name string, established bool, versions ...string) *apiextensionsv1.CustomResourceDefinition {
		c := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: name + ".g"}}
		c.Spec.Group = "g"
		for _, v := range versions {
			c.Spec.Versions = append(c.Spec.Versions, apiextensionsv1.CustomResourceDefinitionVersion{Name: v, Served: v != "v9"})
		}
		if established {
			c.Status.Conditions = []apiextensionsv1.CustomResourceDefinitionCondition{{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue}}
		}
		return c
	}
	list := &listedGroups{groups: map[string][]string{}}
	g := &customGroups{manager: list, served: map[string]map[string][]string{}}
	for _, step := range []struct {
		what string
		do   func()
		want []string
	}{
		{"not established", func() { g.set(crd("a", false, "v1")) }, nil},
		{"established", func() { g.set(crd("a", true, "v1beta1", "v1", "v9")) }, []string{"v1", "v1beta1"}},
		{"another of the group", func() { g.set(crd("b", true, "v2", "v1")) }, []string{"v2", "v1", "v1beta1"}},
		{"one is gone", func() { g.remove(crd("a", true, "v1beta1", "v1")) }, []string{"v2", "v1"}},
		{"all are gone", func() { g.remove(crd("b", true, "v2", "v1")) }, nil},
	} {
		step.do()
		if got := list.groups["g"]; !slices.Equal(got, step.want) {
			t.Errorf("%s: the group has %q, want %q", step.what, got, step.want)
		}
	}
	if len(list.groups) > 0 {
		t.Errorf("left are %v", list.groups)
	}
}
