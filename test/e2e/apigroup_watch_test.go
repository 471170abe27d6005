package e2e

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	"sigs.k8s.io/yaml"

	"github.com/catena-dev/catena/test/internal/cluster"
)

// groupWatches swaps and kills the stages: watches go on where they were, and no event
// is missing or there twice. The watcher here ends with an error if the server does not
// know its resourceVersion any more.
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
			w := newWatched(t, client.Resource(kind.resource).Namespace("default"), kind.object)
			w.createAndSee(t, "before")
			g.swap(t, stage)
			w.createAndSee(t, "swapped")
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
	cmd := exec.CommandContext(t.Context(), filepath.Join(bin, "catena"), "swap", stage, "--data-dir", g.DataDir())
	cmd.Env = cluster.Environ()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// watched is a resource under watch.
type watched struct {
	client dynamic.ResourceInterface
	object func(name string) string
	events <-chan watch.Event
}

func newWatched(t *testing.T, client dynamic.ResourceInterface, object func(string) string) *watched {
	t.Helper()
	list, err := client.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w, err := watchtools.NewRetryWatcherWithContext(t.Context(), list.GetResourceVersion(), &cache.ListWatch{
		WatchFuncWithContext: client.Watch,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Stop)
	return &watched{client, object, w.ResultChan()}
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
		if err != nil && strings.Contains(err.Error(), "already exists") {
			return nil // an answer was lost with its process
		}
		return err
	})
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	select {
	case event := <-w.events:
		if got, ok := event.Object.(*unstructured.Unstructured); !ok || event.Type != watch.Added || got.GetName() != name {
			t.Fatalf("event is %s, want ADDED %s", text(event), name)
		}
	case <-ctx.Done():
		t.Fatalf("no event for %s", name)
	}
}

func text(event watch.Event) string { return fmt.Sprintf("%s %v", event.Type, event.Object) }
