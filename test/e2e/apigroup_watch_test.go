package e2e

import (
	"bytes"
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/yaml"

	"github.com/catena-dev/catena/test/internal/cluster"
)

// groupWatches swaps and kills the stages: informers go on, and no object is missing or
// there twice. A watch resumes, or its client lists again if Kubernetes' watch cache has
// begun later than at its resourceVersion, as after a restart of kube-apiserver.
func groupWatches(t *testing.T, g *groups) {
	client, err := dynamic.NewForConfig(g.config)
	if err != nil {
		t.Fatal(err)
	}
	for stage, kind := range map[string]struct {
		resource schema.GroupVersionResource
		object   func(name string) string
	}{
		"wardle": {schema.GroupVersionResource{Group: "wardle.example.com", Version: "v1alpha1", Resource: "flunders"}, func(n string) string { return flunder(n, "x") }},
		"notes":  {schema.GroupVersionResource{Group: "notes.example.com", Version: "v1", Resource: "notes"}, func(n string) string { return note(n, "x") }},
	} {
		t.Run(stage, func(t *testing.T) {
			t.Parallel()
			w := newWatched(t, client, kind.resource, kind.object)
			w.createAndSee(t, "before")
			g.swap(t, stage)
			w.createAndSee(t, "swapped")
			// What is killed then is restarted. The swap of the other stage may have ended the probation.
			if _, err := g.Command(t.Context(), "swap", stage, "--promote"); err != nil && !strings.Contains(err.Error(), "no swap is on probation") {
				t.Fatal(err)
			}
			pid := g.Stages()[stage]
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			w.createAndSee(t, "restarted")
		})
	}
}

func (g *groups) swap(t *testing.T, stage string) {
	t.Helper()
	bin, err := cluster.Bin()
	if err != nil {
		t.Fatal(err)
	}
	// One change of the chain goes on at a time, and the others of this test swap too.
	eventually(t, "swap of "+stage, func(ctx context.Context) error {
		cmd := exec.CommandContext(ctx, filepath.Join(bin, "catena"), "swap", stage, "--data-dir", g.DataDir())
		cmd.Env = cluster.Environ()
		out, err := cmd.CombinedOutput()
		if err != nil && !bytes.Contains(out, []byte("try again when it is over")) {
			t.Fatalf("%v\n%s", err, out)
		}
		return err
	})
}

// watched is a resource that an informer follows.
type watched struct {
	client dynamic.ResourceInterface
	object func(name string) string
	added  chan string
}

func newWatched(t *testing.T, all dynamic.Interface, resource schema.GroupVersionResource, object func(string) string) *watched {
	t.Helper()
	w := &watched{all.Resource(resource).Namespace("default"), object, make(chan string, 100)}
	informer := dynamicinformer.NewDynamicSharedInformerFactory(all, 0).ForResource(resource).Informer()
	handler, err := informer.AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(object any, initial bool) {
			if o, ok := object.(*unstructured.Unstructured); ok && !initial {
				w.added <- o.GetName()
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	go informer.RunWithContext(t.Context())
	if !cache.WaitForCacheSync(t.Context().Done(), handler.HasSynced) {
		t.Fatal("the informer does not get ready")
	}
	return w
}

// createAndSee creates an object, as soon as that works, and expects just its event.
func (w *watched) createAndSee(t *testing.T, name string) {
	t.Helper()
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(w.object(name)), &object.Object); err != nil {
		t.Fatal(err)
	}
	eventually(t, "create "+name, func(ctx context.Context) error {
		_, err := w.client.Create(ctx, object, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return nil // a response was lost with its process
		}
		return err
	})
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	select {
	case got := <-w.added:
		if got != name {
			t.Fatalf("%s is added, want %s", got, name)
		}
	case <-ctx.Done():
		t.Fatalf("no event for %s", name)
	}
}
