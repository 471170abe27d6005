package system

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/catena-dev/catena/test/internal/cluster"
)

const flunderRights = `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: wardle}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: "system:catena:stage:wardle"}]
`

// seenEvents are those of one watch, of objects that were written after it began.
type seenEvents struct {
	name  string
	after int64

	mu    sync.Mutex
	all   []string
	last  int64
	wrong []string
	ended bool
}

// follow takes the events of a watch until it ends.
func (s *seenEvents) follow(w watch.Interface) {
	for event := range w.ResultChan() {
		s.add(event)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
}

func (s *seenEvents) add(event watch.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	object, err := meta.Accessor(event.Object)
	if err != nil {
		s.wrong = append(s.wrong, fmt.Sprintf("%s: %v", event.Type, err))
		return
	}
	revision, _ := strconv.ParseInt(object.GetResourceVersion(), 10, 64)
	switch {
	case event.Type == watch.Bookmark && !strings.Contains(s.name, "bookmarks"):
		s.wrong = append(s.wrong, "a bookmark")
	case event.Type == watch.Bookmark || revision <= s.after:
	case revision <= s.last:
		s.wrong = append(s.wrong, fmt.Sprintf("%s %d after %d", event.Type, revision, s.last))
	default:
		s.last = revision
		s.all = append(s.all, fmt.Sprint(event.Type, " ", object.GetName(), " ", revision))
	}
}

// Watches outlive the processes that serve them: they go on where these have been when they are replaced or killed, or
// requests go to others, whichever way they have begun, and over either protocol.
func TestWatchesOutliveProcesses(t *testing.T) {
	t.Parallel()
	const rounds = 1
	bin, err := cluster.Bin()
	if err != nil {
		t.Fatal(err)
	}
	c := catena(t, cluster.Options{PluginDirs: []string{filepath.Join(bin, "examples")}, Set: []string{
		"stages.core.delegate=wardle",
		`stages.wardle={"lock":"off","delegate":"extensions","grants":{"store":"own","network":true},` +
			`"drainSpread":"1s"}`,
		"stages.core.drainSpread=1s", "stages.extensions.drainSpread=1s",
	}})
	kubectl(t, c.Server, "apply", "-f", write(t, "rights.yaml", flunderRights))
	kubectl(t, c.Server, "apply", "-f", write(t, "crd.yaml", relistDefinition))
	kubectl(t, c.Server, "wait", "--for=condition=Established", "crd/widgets.relist.example.com", "--timeout=60s")
	watches := map[string][]*seenEvents{}
	writers, stop := context.WithCancel(t.Context())
	defer stop()
	var pending sync.WaitGroup
	defer pending.Wait()
	defer stop()
	client := dynamic.NewForConfigOrDie(c.Config(cluster.Admin))
	written := map[string]*seenEvents{}
	for resource, object := range map[string]map[string]any{
		"configmaps.v1.": {"apiVersion": "v1", "kind": "ConfigMap"}, "events.v1.": {"apiVersion": "v1", "kind": "Event",
			"involvedObject": map[string]any{"kind": "Pod", "namespace": "default", "name": "x"}},
		"widgets.v1.relist.example.com": {"apiVersion": "relist.example.com/v1", "kind": "Widget"},
		"flunders.v1alpha1.wardle.example.com": {"apiVersion": "wardle.example.com/v1alpha1", "kind": "Flunder",
			"spec": map[string]any{"reference": "x"}},
	} {
		gvr, _ := schema.ParseResourceArg(resource)
		if gvr == nil {
			gvr = &schema.GroupVersionResource{Version: "v1", Resource: strings.TrimSuffix(resource, ".v1.")}
		}
		of := client.Resource(*gvr).Namespace(metav1.NamespaceDefault)
		write := func(name string) error {
			o := &unstructured.Unstructured{Object: maps.Clone(object)}
			o.SetName(name)
			_, err := of.Create(writers, o, metav1.CreateOptions{})
			return err
		}
		eventually(t, "there are "+resource, func() bool { return write("first") == nil })
		watches[resource] = startWatches(t, c, *gvr)
		written[resource] = &seenEvents{}
		pending.Go(func() { written[resource].write(writers, of, write) })
	}
	stages := len(c.Stages())
	// settle waits until there is one process of each stage, which is not the given one.
	settle := func(stage string, not int) {
		t.Helper()
		eventually(t, "there is one process of each stage", func() bool {
			now := c.Stages()
			return len(now) == stages && len(c.StageProcesses()) == stages && now[stage] != not
		})
	}
	command := func(args ...string) {
		t.Helper()
		if out, err := c.Command(t.Context(), args...); err != nil {
			t.Fatal(out, err)
		}
	}
	for range rounds {
		for _, stage := range []string{"core", "extensions", "wardle"} {
			if err := c.Swap(t.Context(), stage); err != nil {
				t.Fatal(err)
			}
			settle(stage, 0)
			before := c.Stages()[stage]
			if err := syscall.Kill(before, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			settle(stage, before)
		}
		for _, end := range []string{"--rollback", "--promote"} {
			command("swap", "core", "--canary", "50%", "--for", "1h")
			command("swap", "core", end)
			settle("core", 0)
		}
	}
	stop()
	pending.Wait()
	for resource, all := range watches {
		for _, s := range all {
			s.check(t, resource, written[resource])
		}
	}
	t.Logf("%d writes", len(written["configmaps.v1."].all))
}

// write changes objects, and takes note of the revisions.
func (s *seenEvents) write(ctx context.Context, client dynamic.ResourceInterface, create func(name string) error) {
	for i := 0; ctx.Err() == nil; i++ {
		name := fmt.Sprint("object-", i)
		if err := create(name); err == nil {
			patch := fmt.Appendf(nil, `{"metadata":{"labels":{"n":"%d"}}}`, i)
			if o, err := client.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}); err == nil {
				s.add(watch.Event{Type: watch.Modified, Object: o})
			}
			_ = client.Delete(ctx, name, metav1.DeleteOptions{})
		}
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// startWatches starts watches of a resource of all kinds.
func startWatches(t *testing.T, c *cluster.Catena, resource schema.GroupVersionResource) (all []*seenEvents) {
	t.Helper()
	yes := true
	for _, protocol := range []string{"h2", "http/1.1"} {
		config := c.Config(cluster.Admin)
		config.QPS = -1
		if config.NextProtos = []string{protocol}; protocol == "h2" {
			config.NextProtos = append(config.NextProtos, "http/1.1")
		}
		client := dynamic.NewForConfigOrDie(config).Resource(resource).Namespace(metav1.NamespaceDefault)
		list, err := client.List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		from := list.GetResourceVersion()
		for name, opts := range map[string]metav1.ListOptions{
			"plain":               {ResourceVersion: from},
			"bookmarks":           {ResourceVersion: from, AllowWatchBookmarks: true},
			"from now":            {},
			"from the cache":      {ResourceVersion: "0"},
			"with a long timeout": {ResourceVersion: from, TimeoutSeconds: new(int64(3000))},
			"with a selector":     {ResourceVersion: from, LabelSelector: "none!=x"},
			"initial events bookmarks": { // which is compressed
				SendInitialEvents: &yes, ResourceVersionMatch: "NotOlderThan", AllowWatchBookmarks: true},
		} {
			config.UserAgent = name // a canary has a part of the clients
			for encoding, start := range watchesIn(config, resource) {
				w, err := start(t.Context(), opts)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(w.Stop)
				s := &seenEvents{name: strings.Join([]string{protocol, encoding, name}, " ")}
				s.after, _ = strconv.ParseInt(from, 10, 64)
				go s.follow(w)
				all = append(all, s)
			}
		}
	}
	return all
}

type startWatch = func(context.Context, metav1.ListOptions) (watch.Interface, error)

// watchesIn returns watches of a resource in what a server has of encodings and forms.
func watchesIn(config *rest.Config, resource schema.GroupVersionResource) map[string]startWatch {
	const namespace = metav1.NamespaceDefault
	watches := map[string]startWatch{
		"JSON":     dynamic.NewForConfigOrDie(config).Resource(resource).Namespace(namespace).Watch,
		"metadata": metadata.NewForConfigOrDie(config).Resource(resource).Namespace(namespace).Watch,
		"table": func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			return watchTable(ctx, config, resource, opts)
		},
	}
	config = rest.CopyConfig(config)
	config.ContentType, config.AcceptContentTypes = "application/vnd.kubernetes.protobuf", ""
	switch client := kubernetes.NewForConfigOrDie(config).CoreV1(); resource.GroupResource() {
	case corev1.Resource("events"):
		watches["protobuf"] = client.Events(namespace).Watch
	case corev1.Resource("configmaps"):
		watches["protobuf"] = client.ConfigMaps(namespace).Watch
	}
	return watches
}

// watchTable watches as "kubectl get --watch" does.
func watchTable(
	ctx context.Context, config *rest.Config, resource schema.GroupVersionResource, opts metav1.ListOptions,
) (watch.Interface, error) {
	config = rest.CopyConfig(config)
	version := resource.GroupVersion()
	config.APIPath, config.GroupVersion = "/apis", &version
	if resource.Group == "" {
		config.APIPath = "/api"
	}
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, err
	}
	opts.Watch = true
	body, err := client.Get().Namespace(metav1.NamespaceDefault).Resource(resource.Resource).
		SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").
		VersionedParams(&opts, metav1.ParameterCodec).Stream(ctx)
	if err != nil {
		return nil, err
	}
	w := &tables{body, make(chan watch.Event)}
	go w.read()
	return w, nil
}

// tables are the events of a watch whose objects are tables of one row.
type tables struct {
	body   io.ReadCloser
	events chan watch.Event
}

func (w *tables) Stop() { _ = w.body.Close() }

func (w *tables) ResultChan() <-chan watch.Event { return w.events }

func (w *tables) read() {
	defer close(w.events)
	for events := json.NewDecoder(w.body); ; {
		var event struct {
			Type   watch.EventType
			Object struct {
				Metadata metav1.ListMeta
				Rows     []struct{ Object metav1.PartialObjectMetadata }
			}
		}
		if events.Decode(&event) != nil {
			return
		}
		object := &metav1.PartialObjectMetadata{}
		if rows := event.Object.Rows; len(rows) == 1 {
			object.Name = rows[0].Object.Name
		}
		object.ResourceVersion = event.Object.Metadata.ResourceVersion
		w.events <- watch.Event{Type: event.Type, Object: object}
	}
}

// check compares what a watch has seen with what was written, and with what another has seen.
func (s *seenEvents) check(t *testing.T, resource string, written *seenEvents) {
	t.Helper()
	last := ""
	if n := len(written.all); n > 0 {
		last = written.all[n-1]
	}
	eventually(t, resource+" "+s.name+" has "+last, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.ended || slices.Contains(s.all, last)
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		t.Errorf("%s %s: has ended after %d events, the last is %d", resource, s.name, len(s.all), s.last)
	}
	if len(s.wrong) > 0 {
		t.Errorf("%s %s: %d wrong: %q", resource, s.name, len(s.wrong), s.wrong[:min(len(s.wrong), 5)])
	}
	missing := slices.DeleteFunc(slices.Clone(written.all), func(e string) bool { return slices.Contains(s.all, e) })
	if len(missing) > 0 && !s.ended {
		t.Errorf("%s %s: %d events are missing: %q", resource, s.name, len(missing), missing[:min(len(missing), 5)])
	}
}
