package system

import (
	"testing"

	"github.com/catena-dev/catena/test/internal/cluster"
	"github.com/catena-dev/catena/test/internal/kubelet"
)

// startSession starts a node with a pod, and in it an exec stream, all of which end with
// the test.
func startSession(t *testing.T, c *cluster.Catena) *kubelet.Session {
	t.Helper()
	node, err := kubelet.Join(t.Context(), c, kubelet.Options{Node: "node"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(node.Stop)
	if err := kubelet.RunPod(t.Context(), clientset(t, c.Server, cluster.Admin), "node", "default", "pod"); err != nil {
		t.Fatal(err)
	}
	s, err := kubelet.OpenSession(c.Config(cluster.Admin), "default", "pod")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// echoes checks that a session is alive.
func echoes(t *testing.T, s *kubelet.Session, text string) {
	t.Helper()
	if err := s.Echo(text, patience); err != nil {
		t.Errorf("%q: %v", text, err)
	}
}
