package kube

import (
	"net"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/kubernetes/pkg/controlplane/reconcilers"
)

// removals counts how often the address is removed.
type removals struct {
	reconcilers.EndpointReconciler
	n int
}

func (r *removals) RemoveEndpoints(string, net.IP, []corev1.EndpointPort) error { r.n++; return nil }

func (r *removals) StopReconciling() {}

func TestServingEndpoints(t *testing.T) {
	t.Parallel()
	serving := make(chan struct{})
	r := &removals{}
	e := &servingEndpoints{EndpointReconciler: r, serving: serving}
	remove := func() error { return e.RemoveEndpoints("kubernetes", nil, nil) }
	if err := remove(); err != nil || r.n != 1 {
		t.Errorf("at the start of the server: %v, %d removals, want one", err, r.n)
	}
	close(serving)
	if err := remove(); !storage.IsNotFound(err) || r.n != 1 {
		t.Errorf("at the start of a process of a server that serves: %v, %d removals, want not found and none", err, r.n-1)
	}
	e.StopReconciling()
	if err := remove(); err != nil || r.n != 2 {
		t.Errorf("at the end of the server: %v, %d removals, want one", err, r.n-1)
	}
}
