package system

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
)

// etcdOrder is what has become of objects in etcd's own order, which is what watches have to show.
type etcdOrder struct {
	mu      sync.Mutex
	changes map[string][]change // by resource, such as "configmaps" or "relist.example.com/widgets"
}

// change is a revision of etcd. An object that is not there has no labels.
type change struct {
	revision      int64
	name          string
	before, after map[string]string
}

// followEtcd reads all changes of resources from etcd, until the test ends.
func followEtcd(t *testing.T, endpoint string, resources []string) *etcdOrder {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	o := &etcdOrder{changes: map[string][]change{}}
	all := client.Watch(t.Context(), "/", clientv3.WithPrefix(), clientv3.WithPrevKV(), clientv3.WithRev(1))
	go func() {
		for response := range all {
			if response.Err() != nil && t.Context().Err() == nil {
				t.Error(response.Err())
			}
			for _, e := range response.Events {
				for _, resource := range resources {
					if _, name, ok := strings.Cut(string(e.Kv.Key), "/"+resource+"/default/"); ok {
						o.add(t, resource, name, e)
					}
				}
			}
		}
	}()
	return o
}

func (o *etcdOrder) add(t *testing.T, resource, name string, e *clientv3.Event) {
	c := change{revision: e.Kv.ModRevision, name: name}
	if e.PrevKv != nil {
		c.before = labelsIn(t, e.PrevKv.Value)
	}
	if e.Type == clientv3.EventTypePut {
		c.after = labelsIn(t, e.Kv.Value)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.changes[resource] = append(o.changes[resource], c)
}

// labelsIn returns the labels of a stored object, which are not nil.
func labelsIn(t *testing.T, stored []byte) map[string]string {
	var object metav1.Object = &metav1.PartialObjectMetadata{}
	var err error
	if bytes.HasPrefix(stored, []byte("k8s\x00")) {
		var decoded runtime.Object
		if decoded, _, err = scheme.Codecs.UniversalDeserializer().Decode(stored, nil, nil); err == nil {
			object, err = meta.Accessor(decoded)
		}
	} else {
		err = json.Unmarshal(stored, object)
	}
	if err != nil {
		t.Errorf("a stored object: %v", err)
		return map[string]string{}
	}
	labels := map[string]string{}
	maps.Copy(labels, object.GetLabels())
	return labels
}

func (o *etcdOrder) of(resource string) []change {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.changes[resource][:len(o.changes[resource]):len(o.changes[resource])]
}

// orderedEvent is an event of a watch. One that is not of an object is a bookmark; initialEnd says that it ends the initial
// events.
type orderedEvent struct {
	kind       watch.EventType
	name       string
	revision   int64
	initialEnd bool
}

func (e orderedEvent) String() string { return fmt.Sprintf("%s %s %d", e.kind, e.name, e.revision) }

// orderedWatch is one watch, and what it has shown.
type orderedWatch struct {
	about, resource string
	matches         func(name string, labels map[string]string) bool
	// after is the revision after which it begins; 0 says that it begins with the objects that there are. Lists says that a
	// bookmark ends these.
	after            int64
	lists, bookmarks bool

	mu     sync.Mutex
	events []orderedEvent
	// stopped says that the test has ended it, and ended that it has ended.
	stopped, ended bool
	stop           context.CancelFunc
}

// view returns the events that a watch of a resource has to show, of all changes.
func (w *orderedWatch) view(changes []change) (events []orderedEvent) {
	for _, c := range changes {
		was, is := c.before != nil && w.matches(c.name, c.before), c.after != nil && w.matches(c.name, c.after)
		e := orderedEvent{name: c.name, revision: c.revision, kind: watch.Modified}
		switch {
		case is && !was:
			e.kind = watch.Added
		case was && !is:
			e.kind = watch.Deleted
		case !is:
			continue
		}
		events = append(events, e)
	}
	return events
}

// objectsAt returns the objects that there are at a revision, as the events that begin a watch.
func objectsAt(view []orderedEvent, revision int64) []orderedEvent {
	there := map[string]orderedEvent{}
	for _, e := range view {
		if e.revision > revision {
			break
		}
		if delete(there, e.name); e.kind != watch.Deleted {
			e.kind = watch.Added
			there[e.name] = e
		}
	}
	return sortedByName(slices.Collect(maps.Values(there)))
}

func sortedByName(events []orderedEvent) []orderedEvent {
	return slices.SortedFunc(slices.Values(events), func(a, b orderedEvent) int { return strings.Compare(a.name, b.name) })
}

// follow records the events until there are no more.
func (w *orderedWatch) follow(events <-chan watch.Event) {
	for event := range events {
		e := orderedEvent{kind: event.Type}
		if object, err := meta.Accessor(event.Object); err == nil {
			e.name = object.GetName()
			_, _ = fmt.Sscan(object.GetResourceVersion(), &e.revision)
			e.initialEnd = object.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true"
		}
		w.mu.Lock()
		w.events = append(w.events, e)
		w.mu.Unlock()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
}

// verdict returns what is wrong with what a watch has shown of the changes. Until it has shown all, it is not complete.
func (w *orderedWatch) verdict(changes []change) (complete bool, wrong error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	view := w.view(changes)
	var shown []orderedEvent
	bookmarks := map[int]int64{} // the latest revision, by how many events were shown before
	initial := -1                // how many events are of the objects that there were; unknown
	revision := w.after
	if w.after > 0 {
		initial = 0
	}
	for _, e := range w.events {
		switch {
		case e.kind == watch.Bookmark && w.lists && e.initialEnd:
			initial, revision = len(shown), e.revision
		case e.kind == watch.Bookmark && !w.bookmarks:
			return false, fmt.Errorf("a bookmark that nobody has asked for: %s", e)
		case e.kind == watch.Bookmark:
			bookmarks[len(shown)] = e.revision
		case e.kind == watch.Error && w.stopped: // the client's own
		case e.kind == watch.Error:
			return false, fmt.Errorf("%s after %d events", e, len(shown))
		default:
			shown = append(shown, e)
		}
	}
	switch {
	case w.after > 0:
		complete, wrong = compareChanges(view, shown, w.after)
	case initial >= 0:
		complete, wrong = compareShown(view, shown, initial, revision)
	case w.lists: // what is there of the list is in no order
	case w.ended && !slices.ContainsFunc(shown, func(e orderedEvent) bool { return e.kind != watch.Added }):
		wrong = compareSome(view, shown) // it may have ended in the middle of the objects that there were
	default:
		complete, wrong = compareAny(view, shown)
	}
	for before, revision := range bookmarks {
		if before < len(shown) && initial >= 0 && before >= initial && shown[before].revision <= revision {
			wrong = fmt.Errorf("a bookmark of %d comes before %s", revision, shown[before])
		}
	}
	hasPosition := w.after > 0 || w.lists && initial >= 0 ||
		!w.lists && slices.ContainsFunc(w.events, func(e orderedEvent) bool { return e.kind != watch.Added })
	if w.ended && !w.stopped && hasPosition {
		wrong = fmt.Errorf("it has ended after %d events: %w", len(w.events), wrong)
	}
	return complete || w.ended, wrong
}

// compareAny compares what was shown with the view from any revision on.
func compareAny(view, shown []orderedEvent) (complete bool, wrong error) {
	wrong = fmt.Errorf("it begins with the objects of no revision: %v", shown)
	for initial := 0; initial < len(shown) && shown[initial].kind == watch.Added; initial++ {
		if complete, err := compareShown(view, shown, initial, shown[initial].revision-1); err == nil {
			return complete, nil
		}
	}
	first := slices.IndexFunc(shown, func(e orderedEvent) bool { return e.kind != watch.Added })
	if first >= 0 {
		return compareShown(view, shown, first, shown[first].revision-1)
	}
	for _, at := range slices.Backward(append([]orderedEvent{{}}, view...)) { // the latest is most likely
		if complete, err := compareShown(view, shown, len(shown), at.revision); err == nil {
			return complete, nil
		}
	}
	return false, wrong
}

// compareSome looks for each object of those that were shown in the view.
func compareSome(view, shown []orderedEvent) error {
	for _, e := range shown {
		if !slices.ContainsFunc(view, func(v orderedEvent) bool {
			return v.name == e.name && v.revision == e.revision && v.kind != watch.Deleted
		}) {
			return fmt.Errorf("%s was at no time", e)
		}
	}
	return nil
}

// compareShown compares the first events with the objects of a revision, and the others with the view after it.
func compareShown(view, shown []orderedEvent, initial int, revision int64) (complete bool, wrong error) {
	if got, want := sortedByName(shown[:initial]), objectsAt(view, revision); !slices.Equal(got, want) {
		return false, fmt.Errorf("the objects at %d are %v, want %v", revision, got, want)
	}
	return compareChanges(view, shown[initial:], revision)
}

// compareChanges compares events with the view after a revision.
func compareChanges(view, shown []orderedEvent, revision int64) (complete bool, wrong error) {
	from, _ := slices.BinarySearchFunc(view, revision+1, func(e orderedEvent, r int64) int { return int(e.revision - r) })
	want := view[from:]
	for i, e := range shown {
		if i >= len(want) || e != want[i] {
			return false, fmt.Errorf("event %d after %d is %s, want %v", i, revision, e, want[min(i, len(want)):min(i+1, len(want))])
		}
	}
	return len(shown) == len(want), nil
}
