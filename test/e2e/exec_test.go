package e2e

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"

	"github.com/catena-dev/catena/test/internal/cluster"
	"github.com/catena-dev/catena/test/internal/kubelet"
)

func TestExec(t *testing.T) {
	onEveryProtocol(t, func(t *testing.T, k *kubectl, _ *kubelet.Kubelet) {
		k.equal("hello, pod", "exec", "pod", "--", "echo", "hello,", "pod")
		stdout, stderr, code := k.try("", "exec", "pod", "--", "fail", "3", "it", "broke")
		if stdout != "" || !strings.HasPrefix(stderr, "it broke\n") || code != 3 {
			t.Errorf("a failing command: exit code %d, %q and %q", code, stdout, stderr)
		}
		// Standard input ends, and all of the output still comes.
		want := noise(1 << 20)
		if got, stderr, code := k.try(want, "exec", "-i", "pod", "--", "cat"); got != want || code != 0 {
			t.Errorf("cat of %d bytes gives %d, exit code %d, %s", len(want), len(got), code, stderr)
		}
		k.fail("", []string{"exec", "pod", "--", "nonsense"}, "executable file not found")
		k.fail("", []string{"exec", "none", "--", "echo"}, `pods "none" not found`)
	})
}

func TestExecForbidden(t *testing.T) {
	t.Parallel()
	s := shared(t)
	k := s.kubectl(t)
	k.run("run", "pod", "--image=i")
	k.run("wait", "--for=condition=Ready", "pod/pod", patiently)
	k.run("create", "role", "bob", "--verb=get", "--resource=pods,pods/exec")
	k.run("create", "rolebinding", "bob", "--role=bob", "--user=bob")
	bob := k.with(s.users[cluster.Bob])
	eventuallyPrints(bob, func(out string) bool { return out == "yes\n" }, "auth", "can-i", "get", "pods", "--subresource=exec")
	bob.fail("", []string{"exec", "pod", "--", "echo"}, `User "bob" cannot create resource "pods/exec"`)
	// A WebSocket begins as a GET, which the front allows: it is core that asks for more.
	exec, err := remotecommand.NewWebSocketExecutor(s.Config(cluster.Bob), http.MethodGet, s.execURL(k.namespace, "echo").String())
	if err != nil {
		t.Fatal(err)
	}
	err = exec.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: io.Discard})
	if err == nil || !strings.Contains(err.Error(), `pods "pod" is forbidden`) {
		t.Errorf("exec through a WebSocket: %v", err)
	}
}

// execURL is that of a command in the pod "pod", as clients make it.
func (s *system) execURL(namespace, command string) *url.URL {
	return s.client.CoreV1().RESTClient().Post().Namespace(namespace).Resource("pods").Name("pod").SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Command: []string{command}, Stdout: true, TTY: true}, scheme.ParameterCodec).URL()
}

// sizes is a terminal that has one size.
type sizes chan remotecommand.TerminalSize

func (s sizes) Next() *remotecommand.TerminalSize {
	size, ok := <-s
	if !ok {
		return nil
	}
	return &size
}

func TestExecTerminal(t *testing.T) {
	t.Parallel()
	s := shared(t)
	k := s.kubectl(t)
	k.run("run", "pod", "--image=i")
	k.run("wait", "--for=condition=Ready", "pod/pod", patiently)
	url := s.execURL(k.namespace, "size")
	for name, executor := range map[string]func() (remotecommand.Executor, error){
		"SPDY": func() (remotecommand.Executor, error) {
			return remotecommand.NewSPDYExecutor(s.config, http.MethodPost, url)
		},
		"WebSocket": func() (remotecommand.Executor, error) {
			return remotecommand.NewWebSocketExecutor(s.config, http.MethodGet, url.String())
		},
	} {
		e, err := executor()
		if err != nil {
			t.Fatal(err)
		}
		terminal := make(sizes, 1)
		terminal <- remotecommand.TerminalSize{Width: 132, Height: 43}
		var out bytes.Buffer
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		err = e.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: &out, Tty: true, TerminalSizeQueue: terminal})
		close(terminal)
		cancel()
		if err != nil || out.String() != "132x43\n" {
			t.Errorf("%s: the terminal is %q, want 132x43: %v", name, out.String(), err)
		}
	}
}
