package system

import (
	"context"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/remotecommand"

	"github.com/catena-dev/catena/test/internal/cluster"
	"github.com/catena-dev/catena/test/internal/kubelet"
)

// startPod starts a node that ends with the test, and on it the pod "pod".
func startPod(t *testing.T, c *cluster.Catena) {
	t.Helper()
	const node = "node"
	r := runCatena(t, "kubeconfig", "--data-dir", c.DataDir(), "--user", "system:node:"+node, "--group", "system:nodes")
	if r.code != 0 {
		t.Fatalf("catena kubeconfig: %s", r.stderr)
	}
	config, err := clientcmd.BuildConfigFromFlags("", write(t, "node.kubeconfig", r.stdout))
	if err != nil {
		t.Fatal(err)
	}
	ca, err := os.ReadFile(filepath.Join(c.DataDir(), "pki", "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	k, err := kubelet.Start(t.Context(), config, kubelet.Options{Node: node, ClientCA: pool})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Stop)
	apply(t, c.Server, `
apiVersion: v1
kind: ServiceAccount
metadata: {name: default, namespace: default}
---
apiVersion: v1
kind: Pod
metadata: {name: pod, namespace: default}
spec: {nodeName: node, containers: [{name: c, image: i}]}
`)
	eventually(t, "the pod runs", func() bool {
		pod, err := clientset(t, c.Server, cluster.Admin).CoreV1().Pods("default").Get(t.Context(), "pod", metav1.GetOptions{})
		return err == nil && pod.Status.Phase == corev1.PodRunning
	})
}

// session is a cat in the pod: what is typed comes back.
type session struct {
	keyboard *io.PipeWriter
	screen   *io.PipeReader
	// ended is closed at the end of the stream, whose error is then in err.
	ended chan struct{}
	err   error
}

func startSession(t *testing.T, c *cluster.Catena) *session {
	t.Helper()
	url := clientset(t, c.Server, cluster.Admin).CoreV1().RESTClient().Post().Namespace("default").Resource("pods").Name("pod").SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Command: []string{"cat"}, Stdin: true, Stdout: true}, scheme.ParameterCodec).URL()
	exec, err := remotecommand.NewWebSocketExecutor(c.Config(cluster.Admin), http.MethodGet, url.String())
	if err != nil {
		t.Fatal(err)
	}
	in, keyboard := io.Pipe()
	screen, out := io.Pipe()
	s := &session{keyboard: keyboard, screen: screen, ended: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	go func() {
		defer close(s.ended)
		s.err = exec.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: in, Stdout: out})
		_ = out.CloseWithError(fmt.Errorf("the stream has ended: %w", s.err))
		_ = in.CloseWithError(io.ErrClosedPipe)
	}()
	t.Cleanup(func() { cancel(); <-s.ended })
	return s
}

// echo checks that the session is alive.
func (s *session) echo(t *testing.T, text string) {
	t.Helper()
	got := make([]byte, len(text))
	_, err := io.WriteString(s.keyboard, text)
	if err == nil {
		_, err = io.ReadFull(s.screen, got)
	}
	if err != nil || string(got) != text {
		t.Errorf("%q comes back as %q: %v", text, got, err)
	}
}
