package kube

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/catena-dev/catena/sdk"
	"github.com/catena-dev/catena/sdk/stagetest"
)

func TestConfigurationIsRefused(t *testing.T) {
	t.Parallel()
	stage := Core()
	for name, c := range map[string]struct {
		config string
		flags  []string
		want   string
	}{
		"none":         {"null", []string{"secure-port=6443", "authorization-mode=Node,RBAC"}, ""},
		"empty":        {"{}", nil, ""},
		"unknown flag": {"null", []string{"secure-prt=1"}, "unknown flag: --secure-prt"},
		"bad flag":     {"null", []string{"secure-port=many"}, "secure-port"},
	} {
		var got []string
		for _, problem := range stage.Validate([]byte(c.config), c.flags) {
			got = append(got, problem.Message)
		}
		if all := strings.Join(got, "; "); (c.want == "") != (all == "") || !strings.Contains(all, c.want) {
			t.Errorf("%s: problems are %q, want %q", name, all, c.want)
		}
	}
	launched := stagetest.Launch(t, stage, stagetest.Options{Config: map[string]int{"colour": 1}})
	if err := launched.Configure(); err == nil || !strings.Contains(err.Error(), "colour") {
		t.Errorf("Configure: %v", err)
	}
}

// A stage says without being configured what it has of Kubernetes.
func TestRelease(t *testing.T) {
	t.Parallel()
	k := CoreRelease()
	for what, c := range map[string]struct {
		all  []string
		want string
	}{
		"flags": {k.Flags, "service-cluster-ip-range"}, "feature gates": {k.FeatureGates, "WatchList=true"}, "admission plugins": {k.AdmissionPlugins, "NamespaceLifecycle"},
	} {
		if !slices.Contains(c.all, c.want) {
			t.Errorf("%s: %v lack %s", what, c.all, c.want)
		}
	}
	kinds := map[string]sdk.KubernetesKind{}
	for _, all := range []sdk.Kubernetes{k, ExtensionsRelease(), AggregatorRelease()} {
		for _, kind := range all.Kinds {
			kinds[kind.Group+"/"+kind.Kind] = kind
		}
	}
	for _, want := range []sdk.KubernetesKind{
		{Kind: "Pod", Versions: []string{"v1"}, Served: []string{"v1"}, StorageVersion: "v1"},
		{Group: "autoscaling", Kind: "HorizontalPodAutoscaler", Versions: []string{"v2", "v1"}, Served: []string{"v2", "v1"}, StorageVersion: "v2"},
		{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition", Versions: []string{"v1", "v1beta1"}, Served: []string{"v1"}, StorageVersion: "v1"},
		{Group: "apiregistration.k8s.io", Kind: "APIService", Versions: []string{"v1", "v1beta1"}, Served: []string{"v1"}, StorageVersion: "v1"},
	} {
		if got := kinds[want.Group+"/"+want.Kind]; !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, want %v", want.Kind, got, want)
		}
	}
	if got := kinds["certificates.k8s.io/ClusterTrustBundle"]; got.StorageVersion == got.Versions[0] {
		t.Errorf("%v is not stored in an older version, as Kubernetes' overrides say", got)
	}
}
