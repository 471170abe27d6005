package supervisor

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/catena-dev/catena/sdk/stagev1"
)

const (
	// notifyTimeout bounds one call that tells of a signal.
	notifyTimeout = 2 * time.Second
	// lastNotice is how long Stop waits until all stages have been told of all signals.
	lastNotice = 500 * time.Millisecond
)

// signals are the lifecycle signals of the server that have come, in their order.
type signals struct {
	mu      sync.Mutex
	come    []*stagev1.NotifyRequest
	changed chan struct{} // closed at the next signal
	// telling counts the generations that have not been told of all.
	telling map[*generation]int
}

func newSignals() signals {
	return signals{changed: make(chan struct{}), telling: map[*generation]int{}}
}

// Notify tells all stages that the server has come to a lifecycle signal, and returns at
// once. Generations that come later are told too.
func (s *Supervisor) Notify(signal string, at time.Time) {
	n := &s.signals
	n.mu.Lock()
	defer n.mu.Unlock()
	n.come = append(n.come, &stagev1.NotifyRequest{Signal: signal, At: timestamppb.New(at)})
	close(n.changed)
	n.changed = make(chan struct{})
}

// next returns signal i, nil if it has not come, and a channel that is closed when
// another has. It takes note of how far the generation has been told.
func (n *signals) next(g *generation, i int) (*stagev1.NotifyRequest, <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.telling[g] = i
	if i < len(n.come) {
		return n.come[i], n.changed
	}
	return nil, n.changed
}

func (n *signals) forget(g *generation) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.telling, g)
}

// told says whether all generations have been told of all signals.
func (n *signals) told() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, i := range n.telling {
		if i < len(n.come) {
			return false
		}
	}
	return true
}

// tell tells a generation of all signals in their order, until its process ends. A stage
// that does not want to know is left alone.
func (s *Supervisor) tell(g *generation) {
	defer s.signals.forget(g)
	for i := 0; ; {
		signal, changed := s.signals.next(g, i)
		if signal == nil {
			select {
			case <-changed:
				continue
			case <-g.proc.Done():
				return
			case <-s.background.Done():
				return
			}
		}
		ctx, cancel := context.WithTimeout(s.background, notifyTimeout)
		_, err := g.proc.Client().Notify(ctx, signal)
		cancel()
		switch {
		case status.Code(err) == codes.Unimplemented:
			return
		case err != nil && s.background.Err() == nil && g.proc.Err() == nil:
			g.stage.log.Warn("stage was not told of a signal", "generation", g.id, "signal", signal.GetSignal(), "error", err)
		}
		i++
	}
}

// awaitTold returns when all stages know of all signals, or after a moment.
func (s *Supervisor) awaitTold() {
	for end := time.Now().Add(lastNotice); !s.signals.told() && time.Now().Before(end); {
		time.Sleep(5 * time.Millisecond)
	}
}
