package supervisor

import (
	"context"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/catena-dev/catena/host/internal/generation"
	"github.com/catena-dev/catena/sdk/stagev1"
)

const (
	// notifyTimeout bounds one call that reports a signal.
	notifyTimeout = 2 * time.Second
	// lastNotice is how long Stop waits until all stages know of all signals.
	lastNotice = 500 * time.Millisecond
)

// signals are the lifecycle signals of the server that have come, in their order.
type signals struct {
	mu   sync.Mutex
	come []*stagev1.NotifyRequest
	// known is how many of them each generation knows of.
	known map[*generation.Generation]int
	// changed is closed, and made anew, whenever come or known changes.
	changed chan struct{}
}

func newSignals() signals {
	return signals{changed: make(chan struct{}), known: map[*generation.Generation]int{}}
}

func (n *signals) change() {
	close(n.changed)
	n.changed = make(chan struct{})
}

// Notify tells all stages that the server has come to a lifecycle signal, and returns at
// once. Generations that come later are told too.
func (s *Supervisor) Notify(signal string, at time.Time) {
	n := &s.signals
	n.mu.Lock()
	defer n.mu.Unlock()
	n.come = append(n.come, &stagev1.NotifyRequest{Signal: signal, At: timestamppb.New(at)})
	n.change()
}

// next takes note that a generation knows of the first i signals, and returns the next one,
// nil if it has not come, and a channel that is closed when that may have changed.
func (n *signals) next(g *generation.Generation, i int) (*stagev1.NotifyRequest, <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if known, ok := n.known[g]; !ok || known != i {
		n.known[g] = i
		n.change()
	}
	if i < len(n.come) {
		return n.come[i], n.changed
	}
	return nil, n.changed
}

// follow takes note that a generation is going to be told of all signals.
func (n *signals) follow(g *generation.Generation) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.known[g] = 0
}

// await returns when a generation knows of the signals that have come by now, or will not.
func (n *signals) await(ctx context.Context, g *generation.Generation) {
	n.mu.Lock()
	come := len(n.come)
	n.mu.Unlock()
	for {
		n.mu.Lock()
		known, follows := n.known[g]
		changed := n.changed
		n.mu.Unlock()
		if !follows || known >= come {
			return
		}
		select {
		case <-changed:
		case <-g.Done():
			return
		case <-ctx.Done():
			return
		}
	}
}

func (n *signals) forget(g *generation.Generation) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.known, g)
	n.change()
}

// allNotified reports whether all generations know of all signals, and returns a channel that is
// closed when that may have changed.
func (n *signals) allNotified() (bool, <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, i := range n.known {
		if i < len(n.come) {
			return false, n.changed
		}
	}
	return true, n.changed
}

// awaitNotified returns when all stages know of all signals, or after a moment.
func (s *Supervisor) awaitNotified() {
	end := time.After(lastNotice)
	for {
		done, changed := s.signals.allNotified()
		if done {
			return
		}
		select {
		case <-changed:
		case <-end:
			return
		}
	}
}
