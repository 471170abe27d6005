package sdk

import (
	"context"
	"sync"
)

// drain counts the requests in flight and waits for their end.
type drain struct {
	begun chan struct{} // closed when no new requests will come

	mu      sync.Mutex
	running int
	idle    chan struct{} // closed and forgotten when running gets to 0; nil if nobody waits
}

func newDrain() *drain { return &drain{begun: make(chan struct{})} }

func (d *drain) enter() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.running++
}

func (d *drain) leave() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.running--
	if d.running == 0 && d.idle != nil {
		close(d.idle)
		d.idle = nil
	}
}

// begin says that no new requests will come.
func (d *drain) begin() {
	d.mu.Lock()
	defer d.mu.Unlock()
	select {
	case <-d.begun:
	default:
		close(d.begun)
	}
}

// wait returns when no request is in flight, or when ctx ends, with their number.
func (d *drain) wait(ctx context.Context) int {
	for {
		d.mu.Lock()
		n := d.running
		if n > 0 && d.idle == nil {
			d.idle = make(chan struct{})
		}
		idle := d.idle
		d.mu.Unlock()
		if n == 0 || ctx.Err() != nil {
			return n
		}
		select {
		case <-idle:
		case <-ctx.Done():
		}
	}
}
