package generation

import (
	"context"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/catena-dev/catena/host/internal/bounds"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// intake takes in the events of a stage, which can send them as fast as it likes: those that come within bounds.EventPause are
// made one, and taking them in takes at most 1/bounds.EventShare of the time.
type intake struct {
	take func(*stagev1.Event)
	// next is when events can be taken in again.
	next time.Time
}

// all takes in events until there are no more, or ctx ends, and returns how many came.
func (in *intake) all(ctx context.Context, received <-chan *stagev1.Event) (events int) {
	var waiting merged
	var due <-chan time.Time // nil if none wait
	for {
		more := received
		if waiting.full() {
			more = nil
		}
		select {
		case e, ok := <-more:
			if !ok {
				in.takeIn(&waiting)
				return events
			}
			if waiting.events == 0 {
				due = time.After(time.Until(in.next))
			}
			events++
			waiting.add(e)
		case <-due:
			in.takeIn(&waiting)
			due = nil
		case <-ctx.Done():
			return events
		}
	}
}

// takeIn takes in the events that wait.
func (in *intake) takeIn(waiting *merged) {
	if waiting.events == 0 {
		return
	}
	began := time.Now()
	in.take(waiting.event)
	*waiting = merged{}
	took := time.Since(began)
	in.next = time.Now().Add(max(bounds.EventPause, (bounds.EventShare-1)*took))
}

// merged is what several events make together: the latest claims, and all signals and sizes.
type merged struct {
	event  *stagev1.Event
	events int
	// bytes is how much the events hold, about.
	bytes int
}

// eventItem is what an element of a list takes in memory, about.
const eventItem = 64

func (m *merged) add(e *stagev1.Event) {
	if m.events++; m.event == nil {
		m.event = &stagev1.Event{}
	}
	m.bytes += proto.Size(e) + eventItem*(len(e.GetClaimsChanged().GetClaims())+len(e.GetClaimsChanged().GetListedPaths())+
		len(e.GetSignaled())+len(e.GetResourceSizes()))
	if e.GetClaimsChanged() != nil {
		m.event.ClaimsChanged = e.GetClaimsChanged()
	}
	m.event.Signaled = append(m.event.Signaled, e.GetSignaled()...)
	m.event.ResourceSizes = append(m.event.ResourceSizes, e.GetResourceSizes()...)
}

// full reports whether there is no room for another one.
func (m *merged) full() bool { return m.events >= bounds.Events || m.bytes >= bounds.EventBytes }
