package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

var (
	// errSignal is why the server ends when it was asked to.
	errSignal = errors.New("signal")
	errForced = errors.New("ended by a second signal: requests may have been cut off")
)

// forcedStop bounds the end of the stages after a second signal.
const forcedStop = time.Second

// shutdownContext ends with the first SIGINT or SIGTERM, and force is closed with the
// second. The third ends the process at once; the stages notice that and end too.
func shutdownContext(parent context.Context) (ctx context.Context, force <-chan struct{}, stop context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 3)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	forced := make(chan struct{})
	go func() {
		select {
		case s := <-signals:
			cancel(fmt.Errorf("%w: %s", errSignal, s))
		case <-ctx.Done():
		}
		<-signals
		close(forced)
		<-signals
		os.Exit(130)
	}()
	return ctx, forced, func() { cancel(nil) }
}

// runFront serves until the front has shut down, or until it is to end by force.
func (s *server) runFront(ctx context.Context) error {
	ended := make(chan error, 1)
	go func() { ended <- s.front.Run(ctx) }()
	select {
	case err := <-ended:
		return err
	case <-s.force:
		s.front.Abort()
		s.endDrain()
		return errForced
	}
}

// endByForce ends the stages when the server is to end by force, whatever waits for them.
func (s *server) endByForce() {
	select {
	case <-s.force:
		s.log.Warn("second signal: not waiting for requests any longer")
		s.stages.Kill(forcedStop)
	case <-s.over:
	}
}
