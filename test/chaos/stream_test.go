package chaos

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
)

// stream is everything that the server has sent to one informer: its lists, and each event
// of its watches. It is recorded below the informer, which may merge events.
type stream struct {
	mu sync.Mutex
	// watch is the number of the latest watch; events of earlier ones are ignored.
	watch int
	// position is the version up to which the informer knows everything, unless the
	// server has left out something.
	position uint64
	lists    []listing
	seen     map[uint64]sighting
	deleted  map[string]uint64 // the version of the deletion event, by name
	problems []error
	partial  listing // a list whose end has not come yet
	// ended is called when the server ends a watch before its timeout; it may be nil.
	ended func(request)
	// listedOnly is how many writes missed has found in a list and in no event.
	listedOnly int
}

// listing is a list of all objects. It replaces events that the informer has not received.
type listing struct {
	after, at uint64 // the position before it, and the version of the list
	items     map[string]item
}

type item struct {
	version uint64
	uid     types.UID
}

// sighting is an object as an event had it.
type sighting struct{ name, value string }

func newStream() *stream {
	return &stream{seen: map[uint64]sighting{}, deleted: map[string]uint64{}}
}

// listWatch is what an informer lists and watches with.
func (s *stream) listWatch(client dynamic.ResourceInterface) *cache.ListWatch {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := client.List(ctx, o)
			if err == nil {
				s.listed(o.Continue == "", list)
			}
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			w, err := client.Watch(ctx, o)
			if err != nil {
				return nil, err
			}
			return s.tap(ctx, w, o), nil
		},
	}
}

// listed records a page of a list.
func (s *stream) listed(first bool, list *unstructured.UnstructuredList) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if first {
		s.beginList()
	}
	for _, o := range list.Items {
		s.partial.items[o.GetName()] = item{s.version(&o), o.GetUID()}
	}
	if list.GetContinue() == "" {
		s.endList(s.version(list))
	}
}

func (s *stream) beginList() {
	s.watch++
	s.partial = listing{after: s.position, items: map[string]item{}}
}

func (s *stream) endList(at uint64) {
	if at < s.position {
		s.problem("a list of version %d after events up to %d", at, s.position)
	}
	s.partial.at, s.position = at, at
	s.lists = append(s.lists, s.partial)
}

// tap records the events of a watch as they are delivered, and its end.
func (s *stream) tap(ctx context.Context, from watch.Interface, o metav1.ListOptions) watch.Interface {
	listing, number := s.began(o)
	began, timeout := time.Now(), time.Duration(*o.TimeoutSeconds)*time.Second
	events := make(chan watch.Event)
	to := watch.NewProxyWatcher(events)
	go func() {
		defer close(events)
		defer from.Stop()
		for {
			select {
			case e, ok := <-from.ResultChan():
				if lasted := time.Since(began); !ok && s.ended != nil && ctx.Err() == nil && lasted < timeout-time.Second {
					s.ended(request{began, time.Now()})
				}
				if !ok {
					return
				}
				listing = s.event(number, listing, e)
				select {
				case events <- e:
				case <-to.StopChan():
					return
				}
			case <-to.StopChan():
				return
			}
		}
	}()
	return to
}

// began records the beginning of a watch: whether it lists first, and its number.
func (s *stream) began(o metav1.ListOptions) (listing bool, number int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o.SendInitialEvents != nil && *o.SendInitialEvents {
		s.beginList()
		return true, s.watch
	}
	s.watch++
	// An earlier event may have been recorded without reaching the informer.
	s.position, _ = strconv.ParseUint(o.ResourceVersion, 10, 64)
	return false, s.watch
}

// event records an event. It reports whether the watch still lists after it.
func (s *stream) event(watch int, listing bool, e watch.Event) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, ok := e.Object.(*unstructured.Unstructured)
	if !ok || watch != s.watch || !known(e.Type) {
		return listing // an error ends the watch, or it has ended already
	}
	version := s.version(o)
	if !listing {
		s.advance(version, e.Type, o.GetName())
	}
	if isBookmark(e) {
		if listing && o.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true" {
			s.endList(version)
			return false
		}
		return listing
	}
	s.sight(listing, e, version)
	return listing
}

func known(t watch.EventType) bool {
	return t == watch.Added || t == watch.Modified || t == watch.Deleted || t == watch.Bookmark
}

func isBookmark(e watch.Event) bool { return e.Type == watch.Bookmark }

// advance moves on to an event, which must be a later one.
func (s *stream) advance(version uint64, what watch.EventType, name string) {
	if version < s.position || version == s.position && what != watch.Bookmark {
		s.problem("%s of %s at version %d has come after version %d", what, name, version, s.position)
	}
	s.position = max(s.position, version)
}

func (s *stream) sight(listing bool, e watch.Event, version uint64) {
	o := e.Object.(*unstructured.Unstructured)
	if e.Type == watch.Deleted {
		s.deleted[o.GetName()] = version
		delete(s.partial.items, o.GetName())
		return
	}
	s.seen[version] = sighting{o.GetName(), valueOf(*o)}
	if listing {
		s.partial.items[o.GetName()] = item{version, o.GetUID()}
	}
}

func (s *stream) version(o any) uint64 {
	m, err := meta.CommonAccessor(o)
	if err != nil {
		s.problem("object without metadata: %w", err)
		return 0
	}
	version, err := strconv.ParseUint(m.GetResourceVersion(), 10, 64)
	if err != nil {
		s.problem("version of an object: %w", err)
	}
	return version
}

func (s *stream) problem(format string, args ...any) {
	s.problems = append(s.problems, fmt.Errorf(format, args...))
}
