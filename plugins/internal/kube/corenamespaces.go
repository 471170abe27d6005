package kube

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
)

// hookNamespaces are the namespaces in which post-start hooks of core write. Kubernetes
// runs the hooks at the same time as the one that creates the namespaces, and logs an
// error for each that is too early.
var hookNamespaces = map[string]string{
	"bootstrap-controller":                           metav1.NamespaceDefault,
	"start-kube-apiserver-identity-lease-controller": metav1.NamespaceSystem,
	"start-legacy-token-tracking-controller":         metav1.NamespaceSystem,
}

const (
	namespacePoll = 20 * time.Millisecond
	// namespaceTimeout bounds the wait; the hooks try again by themselves.
	namespaceTimeout = 10 * time.Second
)

// namespaceGate holds up hooks until the namespace that they need exists.
type namespaceGate struct {
	namespaces corev1client.NamespaceInterface
}

// await returns when the hook of this name can run.
func (g namespaceGate) await(ctx context.Context, hook string) {
	name := hookNamespaces[hook]
	if name == "" {
		return
	}
	_ = wait.PollUntilContextTimeout(ctx, namespacePoll, namespaceTimeout, true, func(ctx context.Context) (bool, error) {
		_, err := g.namespaces.Get(ctx, name, metav1.GetOptions{})
		return err == nil, nil
	})
}
