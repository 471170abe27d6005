package kube

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	genericapiserver "k8s.io/apiserver/pkg/server"
)

// At the default port a host has the identity of a kube-apiserver on the same machine, whose
// place it can take; two hosts on one machine have two.
func TestIdentity(t *testing.T) {
	t.Parallel()
	theirs := genericapiserver.NewConfig(serializer.NewCodecFactory(runtime.NewScheme())).APIServerID
	for _, address := range []string{"https://192.0.2.1:6443", "https://192.0.2.1"} {
		if got, err := serverIdentity(address); err != nil || got != theirs {
			t.Errorf("at %s it is %s (%v), want Kubernetes' %s", address, got, err, theirs)
		}
	}
	one, _ := serverIdentity("https://192.0.2.1:6444")
	other, _ := serverIdentity("https://192.0.2.1:6445")
	if one == theirs || one == other || len(one) != len(theirs) {
		t.Errorf("at two other ports it is %s and %s", one, other)
	}
}
