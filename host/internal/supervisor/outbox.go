package supervisor

import (
	"sync"

	"github.com/catena-dev/catena/host/internal/panics"
)

// outbox passes events on one after the other, in the order in which they were added, and
// never while a lock of the supervisor is held.
type outbox struct {
	// failed is called with the panic of what has got an event; the next one gets its event all the same.
	failed func(error)

	mu      sync.Mutex
	waiting []func()
	sending bool
}

// add adds an event. The caller calls send once it has released the lock.
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
