package supervisor

import (
	"sync"
	"time"

	"github.com/catena-dev/catena/host/internal/panics"
)

// outbox passes events on one after the other, in the order in which they were added, and
// never while a lock of the supervisor is held.
type outbox struct {
	// report gets what happens to stages; nil if nobody wants to know.
	report func(Event)
	// failed is called with the panic of what has got an event; the next one gets its event all the same.
	failed func(error)

	mu      sync.Mutex
	waiting []func()
	sending bool
}

// announce reports an event at once.
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

// send passes on what waits, unless another goroutine is doing so: that takes what has
// come meanwhile, too.
func (o *outbox) send() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.sending {
		return
	}
	o.sending = true
	for len(o.waiting) > 0 {
		events := o.waiting
		o.waiting = nil
		o.mu.Unlock()
		for _, event := range events {
			panics.Contain(event, o.failed)()
		}
		o.mu.Lock()
	}
	o.sending = false
}
