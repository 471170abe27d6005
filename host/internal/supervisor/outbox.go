package supervisor

import (
	"sync"
	"time"

	"github.com/catena-dev/catena/host/internal/panics"
)

// outbox passes events on one after the other, in the order in which they were added, on a goroutine of its own: who
// changes a stage does not wait for those who want to know.
type outbox struct {
	// report gets what happens to stages; it may be nil.
	report func(Event)
	// failed is called with the panic of what has got an event; the next one gets its event all the same.
	failed func(error)

	mu      sync.Mutex
	waiting []func()
	sending bool
}

// announce reports an event.
func (o *outbox) announce(e Event) {
	o.emit(e)
	o.send()
}

// emit reports an event at the next unlock.
func (o *outbox) emit(e Event) {
	if o.report == nil {
		return
	}
	if e.At.IsZero() {
		e.At = time.Now()
	}
	o.add(func() { o.report(e) })
}

// add adds what is called at the next unlock.
func (o *outbox) add(event func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.waiting = append(o.waiting, event)
}

// send has what waits passed on.
func (o *outbox) send() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.sending && len(o.waiting) > 0 {
		o.sending = true
		go panics.Contain(o.pass, o.failed)()
	}
}

// pass passes on what waits, and what comes meanwhile.
func (o *outbox) pass() {
	for {
		o.mu.Lock()
		events := o.waiting
		o.waiting, o.sending = nil, len(events) > 0
		o.mu.Unlock()
		if len(events) == 0 {
			return
		}
		for _, event := range events {
			panics.Contain(event, o.failed)()
		}
	}
}

// flush returns when all has been passed on that was added before. What gets an event must not call it.
func (o *outbox) flush() {
	passed := make(chan struct{})
	o.add(func() { close(passed) })
	o.send()
	<-passed
}
