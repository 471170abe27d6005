package kube

import (
	"net"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/kubernetes/pkg/controlplane/reconcilers"
)

// servingEndpoints is the reconciler of the endpoints of the Service kubernetes for a
// process of a server that can have been serving before.
//
// Kubernetes removes the server's address when a process starts, as an earlier one may
// have left it there, and adds it when the server is ready. Here the host serves at this
// address while the process of core is replaced, so the address stays.
type servingEndpoints struct {
	reconcilers.EndpointReconciler
	// serving is closed when the server has been ready.
	serving <-chan struct{}
	stopped atomic.Bool
}

// RemoveEndpoints implements reconcilers.EndpointReconciler.
func (e *servingEndpoints) RemoveEndpoints(service string, ip net.IP, ports []corev1.EndpointPort) error {
	if !e.stopped.Load() && closed(e.serving) {
		return storage.NewKeyNotFoundError(service, 0) // nothing is left from an earlier server
	}
	return e.EndpointReconciler.RemoveEndpoints(service, ip, ports)
}

// StopReconciling implements reconcilers.EndpointReconciler. RemoveEndpoints follows it
// when the server shuts down.
func (e *servingEndpoints) StopReconciling() {
	e.stopped.Store(true)
	e.EndpointReconciler.StopReconciling()
}
