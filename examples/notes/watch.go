package main

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/catena-dev/catena/examples/notes/v1"
)

// poll is how often a watch looks for what another generation of the stage has written.
const poll = 200 * time.Millisecond

// selector returns whether the options select a note.
func (s *storage) selector(options *internalversion.ListOptions) func(*v1.Note) bool {
	label, field := labels.Everything(), fields.Everything()
	if options != nil && options.LabelSelector != nil {
		label = options.LabelSelector
	}
	if options != nil && options.FieldSelector != nil {
		field = options.FieldSelector
	}
	predicate := s.Predicate(label, field)
	return func(note *v1.Note) bool {
		ok, err := predicate.Matches(note)
		return ok && err == nil
	}
}

// Watch begins with the existing notes, if the options have no resourceVersion or ask for
// them, and continues with the changes.
func (s *storage) Watch(ctx context.Context, options *internalversion.ListOptions) (watch.Interface, error) {
	revision, err := strconv.ParseInt("0"+options.ResourceVersion, 10, 64)
	if err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("invalid resourceVersion %q", options.ResourceVersion))
	}
	asked := options.SendInitialEvents != nil && *options.SendInitialEvents
	begin := revision == 0 && options.SendInitialEvents == nil || asked
	list := &v1.NoteList{}
	if begin || revision == 0 {
		if list, revision, err = s.list(ctx, options); err != nil {
			return nil, err
		}
	}
	if !begin {
		list.Items = nil
	}
	events := make(chan watch.Event)
	w := watch.NewProxyWatcher(events)
	f := &follower{storage: s, events: events, stopped: w.StopChan(), namespace: request.NamespaceValue(ctx), selected: s.selector(options), revision: revision}
	go f.run(ctx, list, asked)
	return w, nil
}

// follower sends the events of one watch.
type follower struct {
	*storage
	events    chan<- watch.Event
	stopped   <-chan struct{}
	namespace string
	selected  func(*v1.Note) bool
	revision  int64
}

func (f *follower) run(ctx context.Context, list *v1.NoteList, bookmark bool) {
	defer close(f.events)
	for i := range list.Items {
		if !f.send(ctx, watch.Event{Type: watch.Added, Object: &list.Items[i]}) {
			return
		}
	}
	if bookmark && !f.send(ctx, watch.Event{Type: watch.Bookmark, Object: &v1.Note{ObjectMeta: metav1.ObjectMeta{
		ResourceVersion: strconv.FormatInt(f.revision, 10),
		Annotations:     map[string]string{metav1.InitialEventsAnnotationKey: "true"},
	}}}) {
		return
	}
	for {
		changed := f.changed.next()
		if !f.sendChanges(ctx) {
			return
		}
		select {
		case <-changed:
		case <-time.After(poll):
		case <-ctx.Done():
			return
		case <-f.stopped:
			return
		}
	}
}

// sendChanges sends the changes since the last call. It reports whether the watch goes on.
func (f *follower) sendChanges(ctx context.Context) bool {
	changes, lost, err := f.db.since(ctx, f.revision)
	switch {
	case err != nil:
		if ctx.Err() == nil {
			f.env.Log.Warn("a watch ends", "error", err)
		}
		return false
	case lost:
		expired := apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d", f.revision))
		f.send(ctx, watch.Event{Type: watch.Error, Object: &expired.ErrStatus})
		return false
	}
	for _, c := range changes {
		f.revision = c.revision
		if event, ok := f.event(c); ok && !f.send(ctx, event) {
			return false
		}
	}
	return true
}

// event returns the event of a change for a watch that sees only what it has selected.
func (f *follower) event(c change) (watch.Event, bool) {
	was, is := f.shows(c.before), f.shows(c.after)
	switch {
	case was && is:
		return watch.Event{Type: watch.Modified, Object: c.after}, true
	case is:
		return watch.Event{Type: watch.Added, Object: c.after}, true
	case was:
		return watch.Event{Type: watch.Deleted, Object: c.before}, true
	}
	return watch.Event{}, false
}

func (f *follower) shows(note *v1.Note) bool {
	return note != nil && (f.namespace == "" || note.Namespace == f.namespace) && f.selected(note)
}

func (f *follower) send(ctx context.Context, event watch.Event) bool {
	select {
	case f.events <- event:
		return true
	case <-ctx.Done():
		return false
	case <-f.stopped:
		return false
	}
}

// broadcast wakes all waiting watches. The zero value is ready.
type broadcast struct {
	lock    sync.Mutex
	waiting chan struct{}
}

// next returns a channel that is closed by the next send.
func (b *broadcast) next() <-chan struct{} {
	b.lock.Lock()
	defer b.lock.Unlock()
	if b.waiting == nil {
		b.waiting = make(chan struct{})
	}
	return b.waiting
}

func (b *broadcast) send() {
	b.lock.Lock()
	defer b.lock.Unlock()
	if b.waiting != nil {
		close(b.waiting)
		b.waiting = nil
	}
}
