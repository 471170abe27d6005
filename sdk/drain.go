package sdk

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// DrainingFrom returns a channel that is closed when the request that ctx belongs to is
// to end because the stage gets no new requests. Env.Draining is closed for all requests
// at once; this one is closed at a random moment of the time that the host allows, so that
// the clients do not all come back at once, and, where that time allows it, not in the first two seconds of
// a request: client-go lists anew if a watch ends so early. It is nil if ctx is no context of a request
// from the host.
func DrainingFrom(ctx context.Context) <-chan struct{} {
	if x := exchangeFrom(ctx); x != nil {
		return x.draining()
	}
	return nil
}

// drain counts the requests in flight, signals them to end and waits for them.
type drain struct {
	begun chan struct{} // closed when no new requests will come

	mu      sync.Mutex
	running int
	idle    chan struct{}               // closed and set to nil when running gets to 0; nil if no wait is under way
	end     time.Time                   // when all requests are to have ended; zero until begun
	signals map[chan struct{}]time.Time // to be closed, with when the request asked for them
}

func newDrain() *drain {
	return &drain{begun: make(chan struct{}), signals: map[chan struct{}]time.Time{}}
}

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

// begin starts the drain: the requests that wait for a signal get it within spread. Called again, it can bring the end
// of that time nearer.
func (d *drain) begin(spread time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	end := time.Now().Add(spread)
	switch {
	case d.end.IsZero():
		close(d.begun)
	case !end.Before(d.end):
		return
	}
	d.end = end
	for signal, began := range d.signals {
		d.schedule(signal, began)
	}
}

// signal returns a channel that is closed when one request is to end.
func (d *drain) signal() chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	signal, now := make(chan struct{}), time.Now()
	d.signals[signal] = now
	if !d.end.IsZero() {
		d.schedule(signal, now)
	}
	return signal
}

// forget is called when the request of a signal has ended.
func (d *drain) forget(signal chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.signals, signal)
}

// leastAge is how old a request is to be when it is told to end: client-go counts a second from the end of the initial
// events.
const leastAge = 2 * time.Second

// schedule closes a signal at a random moment before the end, now if that has passed.
func (d *drain) schedule(signal chan struct{}, began time.Time) {
	left := time.Until(d.end)
	if left <= 0 {
		delete(d.signals, signal)
		close(signal)
		return
	}
	least := max(time.Until(began.Add(leastAge)), 0)
	if least > left/2 {
		least = 0 // too many would end at once
	}
	time.AfterFunc(least+rand.N(left-least), func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if _, ok := d.signals[signal]; ok {
			delete(d.signals, signal)
			close(signal)
		}
	})
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
