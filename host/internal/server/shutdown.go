package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/catena-dev/catena/host/internal/front"
	"github.com/catena-dev/catena/host/internal/relay"
	"github.com/catena-dev/catena/host/internal/store"
	"github.com/catena-dev/catena/host/internal/supervisor"
)

const (
	// forcedStop bounds the end of the stages after a second signal.
	forcedStop = time.Second
	// upgradeGrace is how long connections whose protocol was switched may outlast all
	// other requests at the end of the server.
	upgradeGrace = time.Second
	// lostGrace is how long requests and stages may go on when the store has failed, lostEnd how long the front may take to end thereafter.
	// Whatever waits for the store fails, and nothing starts the server again before it has ended.
	lostGrace = 2 * time.Second
	lostEnd   = time.Second
)

var errForced = errors.New("ended by a second signal: requests may have been cut off")

// shutdown ends the front and the stages in order, or by force.
type shutdown struct {
	front  *front.Frontend
	stages *supervisor.Supervisor
	relay  *relay.Chain
	force  <-chan struct{}
	lost   chan struct{} // closed when the store has failed, after lostGrace

	lostErr error // with which it has; set before lost is closed

	drained  chan struct{} // closed when the stages have been drained
	endDrain func()        // ends the drain before that
	ran      bool          // the front has been run, and so has closed itself
}

// runFront serves until the front has shut down and the stages are drained, or until it is
// to end by force.
func (s *shutdown) runFront(ctx context.Context, signaled func(name string, at time.Time)) error {
	s.ran = true
	ended := make(chan error, 1)
	go func() { ended <- s.front.Run(ctx, signaled) }()
	var err error
	select {
	case err = <-ended:
	case <-s.force:
		s.front.Abort()
		s.endDrain()
		err = errForced
	case <-s.lost:
		s.front.Abort()
		s.endDrain()
		select {
		case err = <-ended:
		case <-time.After(lostEnd):
			err = s.lostErr
		}
	}
	s.awaitDrain()
	return err
}

// drainStages drains the stages when the front says so.
func (s *shutdown) drainStages() {
	ctx, cancel := context.WithCancel(context.Background())
	s.drained, s.endDrain = make(chan struct{}), cancel
	go func() {
		defer close(s.drained)
		select {
		case <-s.front.Draining():
			s.relay.EndWatches()
			s.stages.Drain(ctx, 0)
		case <-ctx.Done():
		}
	}()
}

// awaitDrain returns when the stages have ended what they had to do for clients. When
// the front has ended, only upgraded connections can be left of that.
func (s *shutdown) awaitDrain() {
	defer time.AfterFunc(upgradeGrace, s.endDrain).Stop()
	<-s.drained
}

// endByForce ends the stages when the server is to end by force, whatever waits for them.
func (s *shutdown) endByForce(over <-chan struct{}, log hclog.Logger) {
	select {
	case <-s.force:
		log.Warn("second signal: not waiting for requests any longer")
		s.stages.Kill(forcedStop)
	case <-s.lost:
		s.stages.Kill(forcedStop)
	case <-over:
	}
}

// followStore ends the run when its store has failed: within a few seconds, whatever waits for it.
func (s *shutdown) followStore(opening *store.Opening, run life, log hclog.Logger) {
	opened, err := opening.Await()
	if err != nil {
		return // the start ends
	}
	select {
	case err := <-opened.Failed():
		lost := front.Lost{Err: fmt.Errorf("store: %w", err)}
		log.Error("the store has failed: the server ends", "error", err)
		s.lostErr = lost
		s.front.Fail(lost)
		run.end(lost)
	case <-run.over:
		return
	}
	select {
	case <-time.After(lostGrace):
		close(s.lost)
	case <-run.over:
	}
}
