package relay

import (
	"fmt"
	"time"

	"github.com/catena-dev/catena/internal/frames"
)

// An overlap is of the latest events that the client of a watch has got. A nil one is empty.
type overlap struct {
	latest []pastEvent
	// expected are those that the next process is to send again.
	expected []pastEvent
}

type pastEvent struct {
	frames.Event
	at time.Time
}

func (e pastEvent) String() string { return fmt.Sprintf("%v of revision %d", e.Kind, e.Revision) }

const (
	// overlapEvents is how many events are compared at most, and overlapAge how old they may be: what is older, the next
	// process need not know.
	overlapEvents = 64
	overlapAge    = time.Minute
)

// add takes note of an event that the client gets.
func (o *overlap) add(e frames.Event) {
	if o == nil || e.Kind == frames.Bookmark {
		return
	}
	if len(o.latest) == 2*overlapEvents {
		o.latest = append(o.latest[:0], o.latest[overlapEvents:]...)
	}
	o.latest = append(o.latest, pastEvent{e, time.Now()})
}

// begin returns from where the next process is asked, in place of the position.
func (o *overlap) begin(position uint64) uint64 {
	if o == nil {
		return position
	}
	o.latest = o.latest[max(0, len(o.latest)-overlapEvents):]
	for len(o.latest) > 0 && time.Since(o.latest[0].at) > overlapAge {
		o.latest = o.latest[1:]
	}
	o.expected = nil
	if len(o.latest) == 0 {
		return position
	}
	o.expected = o.latest[1:]
	return o.latest[0].Revision
}

// again compares an event that the client has with what is expected, and returns how it differs.
func (o *overlap) again(e frames.Event) (difference string) {
	switch {
	case o == nil || e.Kind == frames.Bookmark:
		return ""
	case len(o.expected) == 0:
		return fmt.Sprintf("it sends %v, which the client has not got", pastEvent{Event: e})
	case o.expected[0].Event != e:
		return fmt.Sprintf("it sends %v, where the client has got %v", pastEvent{Event: e}, o.expected[0])
	}
	o.expected = o.expected[1:]
	return ""
}

// end is called when what the client does not have follows.
func (o *overlap) end() (difference string) {
	if o == nil || len(o.expected) == 0 {
		return ""
	}
	return fmt.Sprintf("it does not send %v, which the client has got", o.expected[0])
}
