package apiserver

import (
	"context"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/cacher"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/tools/cache"

	"github.com/catena-dev/catena/sdk"
)

const (
	// progressInterval is how often the cache of a resource that is watched, or a watch of etcd itself, learns the
	// latest revision, without a change of the resource: a bookmark is not older than that. etcd tells by itself each
	// ten minutes.
	progressInterval = 30 * time.Second
	// catchUpInterval is how often a young cache asks for it, and catchUpTimeout how long a read waits for the cache:
	// as long as Kubernetes' cache has a read wait for a revision.
	catchUpInterval = 50 * time.Millisecond
	catchUpTimeout  = 3 * time.Second
)

// history gives watch caches a past. A cache responds to a watch from an earlier revision if it has all changes since
// then. One that begins with the objects of now has none, so each client of the process before this one would list them
// anew. One that begins with the objects of some minutes ago, and gets the changes since then, has them.
type history struct {
	// revision is where caches begin, and servers are the ones that it is a revision of; 0 is now.
	revision int64
	servers  []string

	interval time.Duration // progressInterval, but in tests

	mu      sync.Mutex
	storage map[*watched]struct{}
}

// watched is storage whose watches are counted.
type watched struct {
	raw  storage.Interface
	open atomic.Int64
}

// began counts a watch.
func (w *watched) began(ctx context.Context) {
	countStream(ctx)
	w.open.Add(1)
	context.AfterFunc(ctx, func() { w.open.Add(-1) })
}

func newHistory(env *sdk.Env) *history {
	h := &history{revision: env.Host().HistoryRevision, interval: progressInterval, storage: map[*watched]struct{}{}}
	for _, flag := range env.Flags() {
		if servers, ok := strings.CutPrefix(flag, "etcd-servers="); ok {
			h.servers = strings.Split(servers, ",")
		}
	}
	return h
}

// WithHistory returns a getter, of Kubernetes' EtcdOptions, whose watch caches know what changed before this process
// was there: with etcd of the flag etcd-servers, they begin with the objects of the revision that the host gives (see
// [sdk.Host]), so clients that watched another process of the stage need not list anew. Reads and watches wait until a
// cache has come up to the revision of its start, for 3 s at most: nothing goes back in time. The storage is ready from
// then on. Storage in other servers is left as it is.
func (a *Adapter) WithHistory(getter generic.RESTOptionsGetter) generic.RESTOptionsGetter {
	return historyGetter{getter, a.history}
}

type historyGetter struct {
	generic.RESTOptionsGetter
	history *history
}

func (g historyGetter) GetRESTOptions(
	resource schema.GroupResource, example runtime.Object,
) (generic.RESTOptions, error) {
	opts, err := g.RESTOptionsGetter.GetRESTOptions(resource, example)
	switch {
	case err != nil || opts.Decorator == nil:
	case !slices.Equal(opts.StorageConfig.Transport.ServerList, g.history.servers):
	case isCached(opts.Decorator):
		opts.Decorator = g.history.decorate
	default:
		opts.Decorator = g.history.decorateUncached
	}
	return opts, err
}

// isCached reports whether a decorator of Kubernetes' options adds a watch cache: they have one other.
func isCached(d generic.StorageDecorator) bool {
	return reflect.ValueOf(d).Pointer() != reflect.ValueOf(generic.UndecoratedStorage).Pointer()
}

// decorate makes storage as Kubernetes' decorator does, whose cache begins in the past.
func (h *history) decorate(
	config *storagebackend.ConfigForResource, resourcePrefix string, keyFunc func(runtime.Object) (string, error),
	newFunc, newListFunc func() runtime.Object, attributes storage.AttrFunc,
	triggers storage.IndexerFuncs, indexers *cache.Indexers,
) (storage.Interface, factory.DestroyFunc, error) {
	raw, destroyRaw, err := generic.NewRawStorage(config, newFunc, newListFunc, resourcePrefix)
	if err != nil {
		return nil, nil, err
	}
	aged := &agedStorage{Interface: raw}
	aged.revision.Store(h.revision)
	cached, err := cacher.NewCacherFromConfig(cacher.Config{
		Storage: aged, Versioner: storage.APIObjectVersioner{}, GroupResource: config.GroupResource,
		EventsHistoryWindow: config.EventsHistoryWindow, ResourcePrefix: resourcePrefix, KeyFunc: keyFunc,
		NewFunc: newFunc, NewListFunc: newListFunc, GetAttrsFunc: attributes,
		IndexerFuncs: triggers, Indexers: indexers, Codec: config.Codec,
	})
	if err != nil {
		destroyRaw()
		return nil, nil, err
	}
	delegator := cacher.NewCacheDelegator(cached, raw)
	ctx, cancel := context.WithCancel(context.Background())
	c := &youngCache{Interface: delegator, cacher: cached, watched: watched{raw: raw}, current: make(chan struct{})}
	if h.revision == 0 {
		close(c.current)
	} else {
		go c.catchUp(ctx)
	}
	h.add(&c.watched)
	return c, sync.OnceFunc(func() {
		h.remove(&c.watched)
		cancel()
		delegator.Stop()
		cached.Stop()
		destroyRaw()
	}), nil
}

// decorateUncached makes storage without a cache.
func (h *history) decorateUncached(
	config *storagebackend.ConfigForResource, resourcePrefix string, keyFunc func(runtime.Object) (string, error),
	newFunc, newListFunc func() runtime.Object, attributes storage.AttrFunc,
	triggers storage.IndexerFuncs, indexers *cache.Indexers,
) (storage.Interface, factory.DestroyFunc, error) {
	s, destroy, err := generic.UndecoratedStorage(
		config, resourcePrefix, keyFunc, newFunc, newListFunc, attributes, triggers, indexers)
	if err != nil {
		return nil, nil, err
	}
	u := &uncached{Interface: s, watched: watched{raw: s}}
	h.add(&u.watched)
	return u, func() {
		h.remove(&u.watched)
		destroy()
	}, nil
}

// uncached is storage without a cache.
type uncached struct {
	storage.Interface
	watched
}

// Watch implements storage.Interface.
func (u *uncached) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	forHost(ctx, &opts)
	w, err := u.Interface.Watch(ctx, key, opts)
	if err == nil {
		u.began(ctx)
	}
	return w, err
}

func (h *history) add(w *watched) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.storage[w] = struct{}{}
}

func (h *history) remove(w *watched) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.storage, w)
}

// run lets the watches of resources know the latest revision, until ctx ends.
func (h *history) run(ctx context.Context) {
	tick := time.NewTicker(h.interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for _, w := range h.watched() {
			_ = w.raw.RequestWatchProgress(ctx) // the next one comes soon
		}
	}
}

func (h *history) watched() []*watched {
	h.mu.Lock()
	defer h.mu.Unlock()
	var all []*watched
	for w := range h.storage {
		if w.open.Load() > 0 {
			all = append(all, w)
		}
	}
	return all
}

// agedStorage responds to the first list with the objects of an earlier revision, if they can still be had.
type agedStorage struct {
	storage.Interface
	revision atomic.Int64 // 0 is now, as it is once it has been used
}

// IsWatchListSemanticsUnSupported has the cache list: a watch cannot begin with the objects of an earlier revision. The
// interface is client-go's.
func (s *agedStorage) IsWatchListSemanticsUnSupported() bool { return s.revision.Load() != 0 }

// GetList implements storage.Interface.
func (s *agedStorage) GetList(ctx context.Context, key string, opts storage.ListOptions, list runtime.Object) error {
	revision := s.revision.Swap(0)
	if revision == 0 || opts.ResourceVersion != "" || opts.Predicate.Continue != "" {
		return s.Interface.GetList(ctx, key, opts, list)
	}
	past := opts
	past.ResourceVersion, past.ResourceVersionMatch = strconv.FormatInt(revision, 10), metav1.ResourceVersionMatchExact
	err := s.Interface.GetList(ctx, key, past, list)
	if err == nil || ctx.Err() != nil || meta.LenList(list) > 0 {
		return err
	}
	return s.Interface.GetList(ctx, key, opts, list) // etcd has forgotten the revision, most likely
}

// youngCache is a storage whose cache may be behind what it has to be.
type youngCache struct {
	storage.Interface // with the cache
	watched
	cacher *cacher.Cacher
	// current is closed when the cache has what was stored when it was made.
	current chan struct{}
}

// catchUp closes current when that is so, or when ctx ends. It gives up when the cache has been filled for
// catchUpTimeout: an old etcd does not tell of its progress.
func (c *youngCache) catchUp(ctx context.Context) {
	defer close(c.current)
	latest, filled := uint64(0), time.Time{}
	for {
		if latest == 0 {
			latest, _ = c.raw.GetCurrentResourceVersion(ctx)
		}
		if latest != 0 && c.cacher.Ready() {
			if filled.IsZero() {
				filled = time.Now()
			}
			has, err := c.cacher.LastSyncResourceVersion()
			if err == nil && has >= latest || time.Since(filled) > catchUpTimeout {
				return
			}
			_ = c.raw.RequestWatchProgress(ctx)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(catchUpInterval):
		}
	}
}

// awaitCurrent waits until the cache is current.
func (c *youngCache) awaitCurrent(ctx context.Context) {
	select {
	case <-c.current:
		return
	default:
	}
	timeout := time.NewTimer(catchUpTimeout)
	defer timeout.Stop()
	select {
	case <-c.current:
	case <-ctx.Done():
	case <-timeout.C:
	}
}

// Get implements storage.Interface.
func (c *youngCache) Get(ctx context.Context, key string, opts storage.GetOptions, object runtime.Object) error {
	if opts.ResourceVersion != "" { // not from the store
		c.awaitCurrent(ctx)
	}
	return c.Interface.Get(ctx, key, opts, object)
}

// GetList implements storage.Interface.
func (c *youngCache) GetList(ctx context.Context, key string, opts storage.ListOptions, list runtime.Object) error {
	if opts.ResourceVersion != "" && opts.ResourceVersionMatch != metav1.ResourceVersionMatchExact {
		c.awaitCurrent(ctx)
	}
	return c.Interface.GetList(ctx, key, opts, list)
}

// Watch implements storage.Interface.
func (c *youngCache) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	// It may begin with the objects that there are. And all that the cache gets of the past goes to each watch that
	// there is: one that does not take it as fast as the cache has it ends.
	c.awaitCurrent(ctx)
	forHost(ctx, &opts)
	w, err := c.Interface.Watch(ctx, key, opts)
	if err == nil {
		c.began(ctx)
	}
	return w, err
}

// ReadinessCheck implements storage.Interface: a server is ready when the caches of its resources are.
func (c *youngCache) ReadinessCheck() error {
	select {
	case <-c.current:
		return c.Interface.ReadinessCheck()
	default:
		return storage.ErrStorageNotReady
	}
}
