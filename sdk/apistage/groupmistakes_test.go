package apistage_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/sample-apiserver/pkg/apis/wardle"
	"k8s.io/sample-apiserver/pkg/apis/wardle/install"
	wardlev1alpha1 "k8s.io/sample-apiserver/pkg/apis/wardle/v1alpha1"

	"github.com/catena-dev/catena/sdk/apistage"
	"github.com/catena-dev/catena/sdk/apistage/apitest"
	"github.com/catena-dev/catena/sdk/stagetest"
)

// What an author gets wrong is told when the stage is configured.
func TestMistakes(t *testing.T) {
	t.Parallel()
	etcd := apitest.Store(t)
	kind := apistage.Kind[*Widget]{List: &WidgetList{}}
	scheme := func(s *runtime.Scheme) error { install.Install(s); return nil }
	for name, test := range map[string]struct {
		group apistage.Group
		want  string
	}{
		"no version":       {apistage.Group{APIVersion: "v1", Resources: []apistage.Resource{kind}}, `Group.APIVersion is "v1", want GROUP/VERSION`},
		"nothing":          {apistage.Group{APIVersion: "g/v1"}, "Group.Resources is empty"},
		"no list":          {apistage.Group{APIVersion: "g/v1", Resources: []apistage.Resource{apistage.Kind[*Widget]{}}}, "List is nil"},
		"twice":            {apistage.Group{APIVersion: "g/v1", Resources: []apistage.Resource{kind, kind}}, `resource "widgets" is there twice`},
		"no status":        {apistage.Group{APIVersion: "g/v1", Resources: []apistage.Resource{apistage.Kind[*Paint]{List: &WidgetList{}, Status: true}}}, "has no field Status"},
		"not in scheme":    {apistage.Group{APIVersion: "wardle.example.com/v1alpha1", AddToScheme: scheme, Resources: []apistage.Resource{kind}}, "is not in the scheme"},
		"not the internal": {apistage.Group{APIVersion: "wardle.example.com/v1alpha1", AddToScheme: scheme, Resources: []apistage.Resource{apistage.Kind[*wardlev1alpha1.Flunder]{List: &wardlev1alpha1.FlunderList{}}}}, "is the scheme's internal type of Flunder"},
		"defaults of an internal type": {apistage.Group{APIVersion: "wardle.example.com/v1alpha1", AddToScheme: scheme, Resources: []apistage.Resource{
			apistage.Kind[*wardle.Flunder]{List: &wardle.FlunderList{}, Default: func(*wardle.Flunder) {}}}}, "register defaults in the scheme"},
		"source":  {apistage.Group{APIVersion: "g/v1", Resources: []apistage.Resource{kind}, TypeSources: []string{"no Go"}}, "source of types"},
		"custom":  {apistage.Group{APIVersion: "g/v1", Resources: []apistage.Resource{apistage.Custom{}}}, "Custom needs Object, List, Plural and Storage"},
		"no etcd": {apistage.Group{APIVersion: "g/v1", Resources: []apistage.Resource{kind}}, "the host has no store"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test.group.Name = "mistaken"
			store := etcd
			if name == "no etcd" {
				store = ""
			}
			stage := stagetest.Launch(t, test.group.Stage(), stagetest.Options{Flags: aloneFlags(store)})
			if err := stage.Configure(); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error is %v, want %q", err, test.want)
			}
		})
	}
}
