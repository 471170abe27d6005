package e2e

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/portforward"

	"github.com/catena-dev/catena/test/internal/kubelet"
)

// What kubectl speaks, and what the node does. The API server translates WebSockets
// for nodes that do not take them, and splices all the rest.
var protocols = []struct {
	name       string
	env        string // for kubectl
	webSockets bool   // of the node
}{
	{"SPDY", "KUBECTL_REMOTE_COMMAND_WEBSOCKETS=false KUBECTL_PORT_FORWARD_WEBSOCKETS=false", false},
	{"WebSocket to SPDY", "KUBECTL_REMOTE_COMMAND_WEBSOCKETS=true KUBECTL_PORT_FORWARD_WEBSOCKETS=true", false},
	{"WebSocket", "KUBECTL_REMOTE_COMMAND_WEBSOCKETS=true KUBECTL_PORT_FORWARD_WEBSOCKETS=true", true},
}

// onEveryProtocol runs a test with a pod named "pod" on a node of each sort.
func onEveryProtocol(t *testing.T, test func(t *testing.T, k *kubectl, node *kubelet.Kubelet)) {
	t.Parallel()
	s := shared(t)
	for _, p := range protocols {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			k := s.kubectl(t)
			for _, env := range strings.Fields(p.env) {
				k = k.setenv(env)
			}
			node := s.cordonedNode(t, kubelet.Options{Node: "node-" + k.namespace, WebSockets: p.webSockets, Cordoned: true})
			k.run("run", "pod", "--image=i", `--overrides={"spec":{"nodeName":"node-`+k.namespace+`"}}`)
			k.run("wait", "--for=condition=Ready", "pod/pod", patiently)
			t.Cleanup(func() { k.afterTest("delete", "pod", "pod", "--force", "--grace-period=0") })
			test(t, k, node)
			if got := node.WebSockets(); (got > 0) != p.webSockets {
				t.Errorf("%d WebSockets have reached the kubelet", got)
			}
		})
	}
}

// cordonedNode adds a node that goes with the test.
func (s *system) cordonedNode(t *testing.T, o kubelet.Options) *kubelet.Kubelet {
	t.Helper()
	node, err := s.startNode(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		node.Stop()
		if err := s.client.CoreV1().Nodes().Delete(context.Background(), o.Node, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	return node
}

// noise is data that cannot be right by accident.
func noise(size int) string {
	data := make([]byte, size)
	_, _ = rand.NewChaCha8(sha256.Sum256([]byte("noise"))).Read(data)
	return string(data)
}

// What is typed is answered before more is typed.
func TestAttach(t *testing.T) {
	onEveryProtocol(t, func(t *testing.T, k *kubectl, _ *kubelet.Kubelet) {
		keyboard, typist, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer keyboard.Close()
		defer typist.Close()
		a := k.startWith(keyboard, "attach", "-i", "pod", "--quiet")
		a.expect("attached to pod/pod")
		for i := range 3 {
			if _, err := fmt.Fprintf(typist, "line %d\n", i); err != nil {
				t.Fatal(err)
			}
			a.expect(fmt.Sprintf("LINE %d", i))
		}
		typist.Close()
		a.end()
	})
}

// When one end of a session goes away without a word, so does the other.
func TestAttachBreaks(t *testing.T) {
	onEveryProtocol(t, func(t *testing.T, k *kubectl, node *kubelet.Kubelet) {
		attach := func() *stream {
			keyboard, typist, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { typist.Close() })
			a := k.startWith(keyboard, "attach", "-i", "pod", "--quiet")
			keyboard.Close()
			a.expect("attached to pod/pod")
			return a
		}
		attach().stop()
		eventually(t, "the kubelet ends the session", func(context.Context) error {
			if n := node.Attached(); n != 0 {
				return fmt.Errorf("%d are attached", n)
			}
			return nil
		})
		left := attach()
		node.Stop()
		left.gone()
	})
}

// Each line comes when it is written, and the kubelet learns that the reader has gone.
func TestLogs(t *testing.T) {
	t.Parallel()
	s := shared(t)
	k := s.kubectl(t)
	node := s.cordonedNode(t, kubelet.Options{Node: "node-" + k.namespace, Cordoned: true})
	k.run("run", "pod", "--image=i", `--overrides={"spec":{"nodeName":"node-`+k.namespace+`"}}`)
	k.run("wait", "--for=condition=Ready", "pod/pod", patiently)
	node.Log(k.namespace, "pod", "line 0\n")
	k.equal("line 0", "logs", "pod")
	logs := k.start("logs", "-f", "pod")
	logs.expect("line 0")
	for i := range 5 {
		node.Log(k.namespace, "pod", fmt.Sprintf("line %d\n", i+1))
		logs.expect(fmt.Sprintf("line %d", i+1))
	}
	logs.stop()
	eventually(t, "the kubelet stops to follow", func(context.Context) error {
		if n := node.Followers(); n != 0 {
			return fmt.Errorf("%d still read", n)
		}
		return nil
	})
	node.Log(k.namespace, "pod", strings.Repeat("a long line of a large log\n", 100_000))
	if got, want := len(k.run("logs", "pod")), len("line 0\n")*6+27*100_000-1; got != want {
		t.Errorf("the large log has %d bytes, want %d", got, want)
	}
}

func TestPortForward(t *testing.T) {
	pod := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(w, r.Body)
	}))
	t.Cleanup(pod.Close)
	_, port, err := net.SplitHostPort(pod.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	onEveryProtocol(t, func(t *testing.T, k *kubectl, _ *kubelet.Kubelet) {
		forward := k.start("port-forward", "pod/pod", ":"+port, "--address=127.0.0.1")
		line := forward.next()
		address, ok := strings.CutPrefix(strings.TrimSuffix(line, " -> "+port), "Forwarding from ")
		if !ok {
			t.Fatalf("port-forward prints %q", line)
		}
		client := &http.Client{Transport: &http.Transport{}, Timeout: timeout}
		defer client.CloseIdleConnections()
		want := noise(1 << 20)
		var wg sync.WaitGroup
		for range 4 { // connections at the same time
			wg.Go(func() {
				resp, err := client.Post("http://"+address, "text/plain", strings.NewReader(want))
				if err != nil {
					t.Error(err)
					return
				}
				defer resp.Body.Close()
				if got, err := io.ReadAll(resp.Body); err != nil || string(got) != want {
					t.Errorf("%d bytes come back as %d: %v", len(want), len(got), err)
				}
			})
		}
		wg.Wait()
	})
}

// kubectl falls back to SPDY; this client does not.
func TestPortForwardOverWebSocket(t *testing.T) {
	t.Parallel()
	s := shared(t)
	k := s.kubectl(t)
	k.run("run", "pod", "--image=i")
	k.run("wait", "--for=condition=Ready", "pod/pod", patiently)
	target := s.client.CoreV1().RESTClient().Post().Namespace(k.namespace).Resource("pods").Name("pod").SubResource("portforward").URL()
	dialer, err := portforward.NewSPDYOverWebsocketDialer(target, s.config)
	if err != nil {
		t.Fatal(err)
	}
	conn, protocol, err := dialer.Dial(portforward.PortForwardProtocolV1Name)
	if err != nil || protocol != portforward.PortForwardProtocolV1Name {
		t.Fatalf("protocol %q: %v", protocol, err)
	}
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
}
