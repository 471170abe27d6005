package system

import (
	"testing"

	"github.com/catena-dev/catena/test/internal/cluster"
)

// prepared returns what a program with the command line of kube-apiserver is started on. It ends
// with the test.
func prepared(t *testing.T, o cluster.Options) *cluster.KubeAPIServer {
	t.Helper()
	k, err := cluster.NewKubeAPIServer(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := k.Stop(t.Failed()); err != nil {
			t.Error(err)
		}
	})
	return k
}

// started starts kube-apiserver, or Catena in its place, and returns when it is ready.
func started(t *testing.T, path string, o cluster.Options) *cluster.KubeAPIServer {
	t.Helper()
	k := prepared(t, o)
	if err := k.Start(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	return k
}

// pair is kube-apiserver and Catena in its place with the same flags, each on an etcd of its own.
type pair struct{ theirs, ours *cluster.KubeAPIServer }

func startPair(t *testing.T, o cluster.Options) pair {
	t.Helper()
	return pair{theirs: started(t, kubeAPIServerPath(t), o), ours: started(t, asKubeAPIServer(t), o)}
}

// each calls f with both, kube-apiserver first.
func (p pair) each(f func(name string, s *cluster.Server)) {
	f("kube-apiserver", p.theirs.Server)
	f("Catena", p.ours.Server)
}

// atOnce calls f with both at the same time, in tests of their own.
func (p pair) atOnce(t *testing.T, f func(t *testing.T, name string, s *cluster.Server)) {
	t.Helper()
	ok := t.Run("at once", func(t *testing.T) {
		p.each(func(name string, s *cluster.Server) {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				f(t, name, s)
			})
		})
	})
	if !ok {
		t.FailNow()
	}
}
