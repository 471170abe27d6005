package apiserver

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path"
	"reflect"
	"strconv"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/apitesting"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/apis/example"
	examplev1 "k8s.io/apiserver/pkg/apis/example/v1"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/etcd3/testserver"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	storagetesting "k8s.io/apiserver/pkg/storage/testing"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// pods is a resource in an etcd of its own.
type pods struct {
	t      *testing.T
	etcd   *clientv3.Client
	config *storagebackend.ConfigForResource
}

func newPods(t *testing.T) *pods {
	t.Helper()
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, metav1.SchemeGroupVersion)
	utilruntime.Must(example.AddToScheme(scheme))
	utilruntime.Must(examplev1.AddToScheme(scheme))
	codec := apitesting.TestCodec(serializer.NewCodecFactory(scheme), examplev1.SchemeGroupVersion)
	client := testserver.RunEtcd(t, nil)
	config := storagebackend.NewDefaultConfig("/registry", codec)
	config.Transport.ServerList = client.Endpoints()
	return &pods{t, client.Client, config.ForResource(schema.GroupResource{Resource: "pods"})}
}

// make makes storage, which ends with the test.
func (p *pods) make(decorate generic.StorageDecorator) storage.Interface {
	p.t.Helper()
	s, destroy, err := decorate(p.config, "/pods",
		func(o runtime.Object) (string, error) {
			pod := o.(*example.Pod)
			return path.Join("/pods", pod.Namespace, pod.Name), nil
		},
		func() runtime.Object { return &example.Pod{} }, func() runtime.Object { return &example.PodList{} },
		func(o runtime.Object) (labels.Set, fields.Set, error) {
			pod := o.(*example.Pod)
			return pod.Labels, fields.Set{
				"metadata.name": pod.Name, "metadata.namespace": pod.Namespace, "spec.nodeName": pod.Spec.NodeName,
			}, nil
		}, nil, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(destroy)
	return s
}

// young makes storage whose cache begins at a revision.
func (p *pods) young(revision int64) *youngCache {
	h := &history{revision: revision, storage: map[*watched]struct{}{}}
	return p.make(h.decorate).(*youngCache)
}

// ready returns storage whose cache has been filled.
func (p *pods) ready(s storage.Interface) storage.Interface {
	p.t.Helper()
	err := wait.PollUntilContextTimeout(p.t.Context(), time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		return s.ReadinessCheck() == nil, nil
	})
	if err != nil {
		p.t.Fatal("storage does not become ready")
	}
	return s
}

// change creates or changes n pods called PREFIX-0 to PREFIX-9 and returns the last revision.
func (p *pods) change(prefix string, n int) int64 {
	p.t.Helper()
	raw := p.make(generic.UndecoratedStorage)
	last := int64(0)
	for i := range n {
		pod, name := &example.Pod{}, fmt.Sprintf("%s-%d", prefix, i%10)
		err := raw.GuaranteedUpdate(p.t.Context(), "/pods/ns/"+name, pod, true, nil,
			func(runtime.Object, storage.ResponseMeta) (runtime.Object, *uint64, error) {
				m := metav1.ObjectMeta{Name: name, Namespace: "ns", Labels: map[string]string{"n": strconv.Itoa(i)}}
				return &example.Pod{ObjectMeta: m}, nil, nil
			}, nil)
		if err != nil {
			p.t.Fatal(err)
		}
		last = revisionOf(pod)
	}
	return last
}

func revisionOf(o runtime.Object) int64 {
	if cached, ok := o.(runtime.CacheableObject); ok {
		o = cached.GetObject()
	}
	revision, _ := strconv.ParseInt(o.(*example.Pod).ResourceVersion, 10, 64)
	return revision
}

// events reads what a watch from a revision sends, up to a revision. An error ends it.
func (p *pods) events(s storage.Interface, from, to int64) (revisions []int64, err error) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), time.Minute)
	defer cancel()
	w, err := s.Watch(ctx, "/pods", storage.ListOptions{
		ResourceVersion: strconv.FormatInt(from, 10), Predicate: storage.Everything, Recursive: true,
	})
	if err != nil {
		return nil, err
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		if e.Type == watch.Error {
			return revisions, apierrors.FromObject(e.Object)
		}
		at := revisionOf(e.Object)
		if revisions = append(revisions, at); at == to {
			return revisions, nil
		}
	}
	return revisions, fmt.Errorf("the watch ended after %d events", len(revisions))
}

// A watch from a revision before the process of the cache was there gets each event once, in order; with Kubernetes'
// cache it ends.
func TestYoungCacheKnowsThePast(t *testing.T) {
	t.Parallel()
	p := newPods(t)
	position := p.change("a", 1)
	const changes = 1000
	last := p.change("b", changes)
	kubernetes := p.ready(p.make(registry.StorageWithCacher()))
	if _, err := p.events(kubernetes, position, last); !apierrors.IsResourceExpired(err) {
		t.Fatalf("with Kubernetes' cache: %v, want an expired revision", err)
	}
	got, err := p.events(p.ready(p.young(position)), position, last)
	if err != nil || len(got) != changes {
		t.Fatalf("%d events, want %d: %v", len(got), changes, err)
	}
	for i, revision := range got {
		if want := last - changes + int64(i) + 1; revision != want {
			t.Fatalf("event %d has revision %d, want %d", i, revision, want)
		}
	}
}

// Reads of a cache that is behind wait.
func TestNothingGoesBack(t *testing.T) {
	t.Parallel()
	p := newPods(t)
	position := p.change("a", 1)
	last := p.change("b", 3000)
	if _, err := p.etcd.Put(t.Context(), "/other", "that the last change is not the latest revision"); err != nil {
		t.Fatal(err)
	}
	latest := func(name string, read func(*youngCache) (newest int64, err error)) {
		t.Helper()
		s := p.young(position)
		if err := s.cacher.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		got, err := read(s)
		if err != nil || got != last {
			t.Errorf("%s: revision %d, want %d: %v", name, got, last, err)
		}
	}
	list := func(opts storage.ListOptions) func(*youngCache) (int64, error) {
		return func(s *youngCache) (newest int64, err error) {
			l := &example.PodList{}
			opts.Predicate, opts.Recursive = storage.Everything, true
			if err := s.GetList(t.Context(), "/pods", opts, l); err != nil {
				return 0, err
			}
			for i := range l.Items {
				at := revisionOf(&l.Items[i])
				newest = max(newest, at)
			}
			return newest, nil
		}
	}
	latest("list, any", list(storage.ListOptions{ResourceVersion: "0"}))
	latest("list, not older", list(storage.ListOptions{
		ResourceVersion: "1", ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
	}))
	latest("list", list(storage.ListOptions{}))
	latest("get, any", func(s *youngCache) (int64, error) {
		pod := &example.Pod{}
		err := s.Get(t.Context(), "/pods/ns/b-9", storage.GetOptions{ResourceVersion: "0"}, pod)
		at := revisionOf(pod)
		return at, err
	})
	for _, from := range []string{"", "0"} {
		latest("watch from "+strconv.Quote(from), func(s *youngCache) (newest int64, err error) {
			w, err := s.Watch(t.Context(), "/pods", storage.ListOptions{
				ResourceVersion: from, Predicate: storage.Everything, Recursive: true,
			})
			if err != nil {
				return 0, err
			}
			defer w.Stop()
			for range 11 { // what there is; anything else would be a change that was shown as if it came now
				e := <-w.ResultChan()
				if e.Type != watch.Added {
					return 0, fmt.Errorf("%s of %v", e.Type, e.Object)
				}
				at := revisionOf(e.Object)
				newest = max(newest, at)
			}
			return newest, nil
		})
	}
	latest("ready", func(s *youngCache) (int64, error) {
		p.ready(s)
		has, err := s.cacher.LastSyncResourceVersion()
		return min(int64(has), last), err
	})
}

// A revision that etcd has forgotten, or does not have yet, leaves a cache as Kubernetes' is.
func TestHistoryThatThereIsNot(t *testing.T) {
	t.Parallel()
	p := newPods(t)
	position := p.change("a", 1)
	last := p.change("b", 20)
	if _, err := p.etcd.Compact(t.Context(), last-5); err != nil {
		t.Fatal(err)
	}
	for name, revision := range map[string]int64{"compacted": position, "of the future": last + 1000} {
		s := p.ready(p.young(revision))
		l := &example.PodList{}
		err := s.GetList(t.Context(), "/pods", storage.ListOptions{
			ResourceVersion: "0", Predicate: storage.Everything, Recursive: true,
		}, l)
		if err != nil || len(l.Items) != 11 {
			t.Errorf("%s: %d objects, %v", name, len(l.Items), err)
		}
		if _, err := p.events(s, position, last); !apierrors.IsResourceExpired(err) {
			t.Errorf("%s: %v, want an expired revision", name, err)
		}
	}
}

// The caches of watched resources learn that others have changed.
func TestProgressOfQuietResources(t *testing.T) {
	t.Parallel()
	p := newPods(t)
	position := p.change("a", 1)
	h := &history{revision: position, interval: 10 * time.Millisecond, storage: map[*watched]struct{}{}}
	s := p.make(h.decorate).(*youngCache)
	p.ready(s)
	go h.run(t.Context())
	ctx, cancel := context.WithCancel(t.Context())
	_, err := s.Watch(ctx, "/pods", storage.ListOptions{
		ResourceVersion: strconv.FormatInt(position, 10), Predicate: storage.Everything,
	})
	if err != nil {
		t.Fatal(err)
	}
	put, err := p.etcd.Put(t.Context(), "/other", "value")
	if err != nil {
		t.Fatal(err)
	}
	err = wait.PollUntilContextTimeout(t.Context(), time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		has, err := s.cacher.LastSyncResourceVersion()
		return int64(has) >= put.Header.Revision, err
	})
	if err != nil {
		t.Error("a watched cache does not move:", err)
	}
	cancel()
	err = wait.PollUntilContextTimeout(t.Context(), time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		return len(h.watched()) == 0, nil
	})
	if err != nil {
		t.Error("a watch that has ended counts")
	}
}

// A watch that another process may go on with has bookmarks, whether the client wants them or not.
func TestBookmarksForTheHost(t *testing.T) {
	t.Parallel()
	p := newPods(t)
	position := p.change("a", 1)
	h := &history{interval: 10 * time.Millisecond, storage: map[*watched]struct{}{}}
	cached, uncached := p.ready(p.make(h.decorate)), p.make(h.decorateUncached)
	go h.run(t.Context())
	if _, err := p.etcd.Put(t.Context(), "/other", "value"); err != nil {
		t.Fatal(err)
	}
	initial := true
	for name, s := range map[string]storage.Interface{"cached": cached, "uncached": uncached} {
		for _, c := range []struct{ asked, initial, want bool }{
			{true, false, true}, {true, true, false}, {false, false, false},
		} {
			ctx, cancel := context.WithCancel(t.Context())
			signal := &watchSignal{asked: c.asked}
			opts := storage.ListOptions{ResourceVersion: strconv.FormatInt(position, 10), Predicate: storage.Everything}
			if c.initial {
				opts.SendInitialEvents = &initial
			}
			w, err := s.Watch(&hostRequest{Context: ctx, adapter: &Adapter{}, watch: signal}, "/pods", opts)
			if err != nil {
				t.Fatal(err)
			}
			if signal.bookmarks != c.want {
				t.Errorf("%s, %+v: sends bookmarks %v", name, c, signal.bookmarks)
			}
			for got := name == "cached"; c.want && !got; { // the cache sends one in a minute
				select {
				case event := <-w.ResultChan():
					got = event.Type == watch.Bookmark && revisionOf(event.Object) > position
				case <-time.After(time.Minute):
					t.Fatal(name + ": no bookmark")
				}
			}
			cancel()
		}
	}
}

// Watches that Kubernetes' handler would compress are left to the host, if that can.
func TestCompressionIsTheHosts(t *testing.T) {
	t.Parallel()
	yes := true
	for _, c := range []struct {
		accepts                   string
		asked, initial, bookmarks bool
		want                      bool
	}{
		{"gzip", true, true, true, true}, {"br, gzip", true, true, true, true},
		{"gzip;q=0", true, true, true, false}, {"", true, true, true, false},
		{"gzip", false, true, true, false}, {"gzip", true, false, true, false}, {"gzip", true, true, false, false},
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("Accept-Encoding", c.accepts)
		signal := &watchSignal{asked: c.asked}
		opts := storage.ListOptions{Predicate: storage.Everything}
		opts.Predicate.AllowWatchBookmarks = c.bookmarks
		if c.initial {
			opts.SendInitialEvents = &yes
		}
		forHost(&hostRequest{Context: t.Context(), adapter: &Adapter{}, watch: signal, r: r}, &opts)
		wantLeft := c.accepts
		if c.want {
			wantLeft = ""
		}
		if left := r.Header.Get("Accept-Encoding"); signal.compressed != c.want || left != wantLeft {
			t.Errorf("%+v: the host compresses: %v, the handler gets %q", c, signal.compressed, left)
		}
	}
}

// silent is an etcd that does not tell of its progress.
type silent struct{ storage.Interface }

func (silent) RequestWatchProgress(context.Context) error { return nil }

// With such an etcd, the cache of a resource that does not change counts as current after some seconds: reads do not wait for
// ever, nor does the start of the server.
func TestCatchUpGivesUp(t *testing.T) {
	t.Parallel()
	p := newPods(t)
	p.change("a", 1)
	s := p.young(0) // which asks for no progress
	p.ready(s)
	if _, err := p.etcd.Put(t.Context(), "/other", "value"); err != nil {
		t.Fatal(err)
	}
	behind := &youngCache{
		Interface: s.Interface, cacher: s.cacher, watched: watched{raw: silent{s.raw}}, current: make(chan struct{}),
	}
	began := time.Now()
	go behind.catchUp(t.Context())
	p.ready(behind)
	if took := time.Since(began); took < catchUpTimeout {
		t.Errorf("it counts as current after %s", took)
	}
}

// What has another etcd, or no cache, is left alone.
func TestWithHistoryOf(t *testing.T) {
	t.Parallel()
	own := []string{"unix:///own"}
	h := &history{revision: 7, servers: own}
	for name, tc := range map[string]struct {
		servers   []string
		decorator generic.StorageDecorator
		want      bool
	}{
		"own etcd, cached": {own, registry.StorageWithCacher(), true},
		"other etcd":       {[]string{"https://other"}, registry.StorageWithCacher(), false},
		"no cache":         {own, generic.UndecoratedStorage, false}, "nothing": {own, nil, false},
	} {
		config := storagebackend.Config{Transport: storagebackend.TransportConfig{ServerList: tc.servers}}
		getter := generic.RESTOptions{StorageConfig: config.ForResource(schema.GroupResource{}), Decorator: tc.decorator}
		opts, err := historyGetter{getter, h}.GetRESTOptions(schema.GroupResource{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := reflect.ValueOf(opts.Decorator).Pointer() == reflect.ValueOf(h.decorate).Pointer(); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}

// What holds for Kubernetes' storage holds for one with a past. These tests set feature gates, so they run one after
// the other.
func TestHistoryHasKubernetesSemantics(t *testing.T) {
	for name, run := range map[string]func(context.Context, *testing.T, storage.Interface){
		"get": storagetesting.RunTestGet, "watch": storagetesting.RunTestWatch, "delete triggers": storagetesting.RunTestDeleteTriggerWatch,
		"from a revision": storagetesting.RunTestWatchFromNonZero, "delayed delivery": storagetesting.RunTestDelayedWatchDelivery,
		"cancel": storagetesting.RunTestWatchContextCancel, "timeout": storagetesting.RunTestWatcherTimeout,
		"deleted has the latest revision": storagetesting.RunTestWatchDeleteEventObjectHaveLatestRV,
		"initialization":                  storagetesting.RunTestWatchInitializationSignal, "cluster": storagetesting.RunTestClusterScopedWatch,
		"namespace": storagetesting.RunTestNamespaceScopedWatch, "initial events": storagetesting.RunSendInitialEventsBackwardCompatibility,
		"semantics": storagetesting.RunWatchSemantics, "extended initial events": storagetesting.RunWatchSemanticInitialEventsExtended,
		"lists of a prefix": storagetesting.RunTestGetListRecursivePrefix, "lists of namespaces": storagetesting.RunTestNamespaceScopedList,
	} {
		t.Run(name, func(t *testing.T) {
			p := newPods(t)
			for range 50 {
				if _, err := p.etcd.Put(t.Context(), "/other", "value"); err != nil {
					t.Fatal(err)
				}
			}
			run(t.Context(), t, p.ready(p.young(1)))
		})
	}
}
