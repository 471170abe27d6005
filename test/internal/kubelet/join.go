package kubelet

import (
	"context"
	"crypto/x509"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/catena-dev/catena/test/internal/cluster"
)

// Join starts a kubelet for a node of a Catena.
func Join(ctx context.Context, c *cluster.Catena, o Options) (*Kubelet, error) {
	config, err := c.CertificateConfig(ctx, "system:node:"+o.Node, "system:nodes")
	if err != nil {
		return nil, err
	}
	ca, err := c.ClientCA()
	if err != nil {
		return nil, err
	}
	o.ClientCA = x509.NewCertPool()
	o.ClientCA.AppendCertsFromPEM(ca)
	return Start(ctx, config, o)
}

// RunPod creates a pod on a node and returns when it runs. The client needs all rights.
func RunPod(ctx context.Context, client kubernetes.Interface, node, namespace, name string) error {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}} // which a pod must have
	if _, err := client.CoreV1().ServiceAccounts(namespace).Create(ctx, account, metav1.CreateOptions{}); err != nil {
		return err
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}}
	pod.Spec.NodeName = node
	pod.Spec.Containers = []corev1.Container{{Name: "c", Image: "i"}}
	if _, err := client.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for {
		pod, err := client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		if err == nil && pod.Status.Phase == corev1.PodRunning {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("pod %s does not run: %w", name, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}
