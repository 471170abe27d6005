package supervisor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/catena-dev/catena/host/internal/generation"
	"github.com/catena-dev/catena/host/internal/process"
)

var errNoStandby = errors.New("does not announce in Describe that it can stand by; it runs without a standby")

// renewStandby ends the standby of a stage, which was one for another generation, and
// brings up another in the background, after the delay, if the stage is to have one.
func (s *stage) renewStandby(delay time.Duration) {
	held := s.of.lock()
	old := s.guarded.generations[s.guarded.machine.Dismiss()]
	s.guarded.standbyFailure, s.guarded.standbyFailures = "", 0
	s.keepStandby(held, delay)
	held.unlock()
	if old != nil {
		s.of.goFor(old, func() { s.live(old).stop("another takes its place") })
	}
}

// keepStandby sees to it that the current generation of a stage has a standby, if the stage
// is to have one, and ends an earlier attempt.
func (s *stage) keepStandby(held *locked, delay time.Duration) {
	s.guarded.endStandby()
	current := s.guarded.current()
	if !s.guarded.machine.NeedsStandby() || !s.guarded.spec.Standby || s.guarded.spec.Attach != "" {
		return
	}
	ctx, cancel := context.WithCancel(s.of.background)
	s.guarded.endStandby = cancel
	s.of.goFor(nil, func() {
		defer cancel()
		if sleep(ctx, delay) {
			s.makeStandby(ctx, current)
		}
	})
}

// makeStandby brings up a standby for a generation, unless ctx ends.
func (s *stage) makeStandby(ctx context.Context, current *generation.Generation) {
	began := time.Now()
	g, err := s.newStandby(ctx, current)
	held := s.of.lock()
	needed := ctx.Err() == nil && s.guarded.current() == current && s.guarded.machine.NeedsStandby()
	held.unlock()
	if err != nil {
		if needed {
			s.standbyFailed("", time.Since(began), err)
		}
		return
	}
	s.log.Info("standby is ready", "generation", g.ID(), "pid", g.PID(), "took", time.Since(began).Round(time.Millisecond))
	s.of.events.announce(Event{Kind: StandbyReady, Stage: s.name, From: current.ID(), To: g.ID(), Took: time.Since(began)})
}

// newStandby brings up a standby for a generation, on its socket, to the point at which it
// is ready. It stands by when newStandby returns.
func (s *stage) newStandby(ctx context.Context, current *generation.Generation) (*generation.Generation, error) {
	if !current.CanStandBy() {
		return nil, fmt.Errorf("stage %q: %w", s.name, errNoStandby)
	}
	r := s.of.rolloutOf()
	m := r.member(s)
	if m == nil {
		return nil, fmt.Errorf("stage %q is not in the chain", s.name)
	}
	m.launching, m.listener, m.standby, r.ready = true, current.Listener(), true, true
	err := r.run(ctx)
	if err == nil {
		held := s.of.lock()
		if err = ctx.Err(); err == nil {
			err = s.guarded.machine.StandBy(m.generation.ID(), current.ID())
		}
		held.unlock()
	}
	if err != nil {
		r.discard()
		return nil, fmt.Errorf("standby of stage %q: %w", s.name, err)
	}
	return m.generation, nil
}

// standbyFailed takes note of why there is no standby, and has another brought up later.
// Ended is the generation that has ended after the given time, if one has.
func (s *stage) standbyFailed(ended string, ran time.Duration, err error) {
	held := s.of.lock()
	s.guarded.standbyFailure = err.Error()
	if !errors.Is(err, errNoStandby) {
		var delay time.Duration
		delay, s.guarded.standbyFailures = process.DefaultBackoff().Next(s.guarded.standbyFailures, ran, 0)
		s.keepStandby(held, delay)
	}
	held.unlock()
	s.log.Error("stage has no standby", "error", err)
	s.of.events.announce(Event{Kind: StandbyFailed, Stage: s.name, To: ended, Reason: err.Error()})
}
