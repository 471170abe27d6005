package supervisor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/catena-dev/catena/host/internal/process"
	"github.com/catena-dev/catena/host/internal/supervisor/generation"
)

var errNoStandby = errors.New("does not announce in Describe that it can stand by; it runs without a standby")

// renewStandby ends the standby of a stage, which was one for another generation, and
// brings up another in the background if the stage is to have one.
func (s *Supervisor) renewStandby(st *stage) { s.renewStandbyAfter(st, 0) }

func (s *Supervisor) renewStandbyAfter(st *stage, delay time.Duration) {
	now := s.lock()
	old := st.generations[st.state.Dismiss()]
	st.standbyFailure, st.standbyFailures = "", 0
	s.keepStandby(now, st, delay)
	now.unlock()
	if old != nil {
		s.goFor(old, func() { s.stop(st, old, "another takes its place") })
	}
}

// keepStandby sees to it that the current generation of a stage has a standby, if the stage
// is to have one, and ends an earlier attempt.
func (s *Supervisor) keepStandby(now *state, st *stage, delay time.Duration) {
	st.endStandby()
	current := st.current()
	if !st.state.NeedsStandby() || !st.spec.Standby || st.spec.Attach != "" {
		return
	}
	ctx, cancel := context.WithCancel(s.background)
	st.endStandby = cancel
	s.goFor(nil, func() {
		defer cancel()
		if sleep(ctx, delay) {
			s.makeStandby(ctx, st, current)
		}
	})
}

// makeStandby brings up a standby for a generation, unless ctx ends.
func (s *Supervisor) makeStandby(ctx context.Context, st *stage, current *generation.Generation) {
	began := time.Now()
	g, err := s.newStandby(ctx, st, current)
	now := s.lock()
	needed := ctx.Err() == nil && st.current() == current && st.state.NeedsStandby()
	now.unlock()
	if err != nil {
		if needed {
			s.standbyFailed(st, "", time.Since(began), err)
		}
		return
	}
	st.log.Info("standby is ready", "generation", g.ID(), "pid", g.PID(), "took", time.Since(began).Round(time.Millisecond))
	s.events.announce(Event{Kind: StandbyReady, Stage: st.name, From: current.ID(), To: g.ID(), Took: time.Since(began)})
}

// newStandby brings up a standby for a generation, on its socket, to the point at which it
// is ready. It stands by when newStandby returns.
func (s *Supervisor) newStandby(ctx context.Context, st *stage, current *generation.Generation) (*generation.Generation, error) {
	if !current.CanStandBy() {
		return nil, fmt.Errorf("stage %q: %w", st.name, errNoStandby)
	}
	r := s.rolloutOf()
	m := r.member(st)
	if m == nil {
		return nil, fmt.Errorf("stage %q is not in the chain", st.name)
	}
	m.launching, m.listener, m.standby, r.ready = true, current.Listener(), true, true
	err := r.run(ctx)
	if err == nil {
		now := s.lock()
		if err = ctx.Err(); err == nil {
			err = st.state.StandBy(m.generation.ID(), current.ID())
		}
		now.unlock()
	}
	if err != nil {
		r.discard()
		return nil, fmt.Errorf("standby of stage %q: %w", st.name, err)
	}
	return m.generation, nil
}

// standbyFailed takes note of why there is no standby, and has another brought up later.
// Ended is the generation that has ended after the given time, if one has.
func (s *Supervisor) standbyFailed(st *stage, ended string, ran time.Duration, err error) {
	now := s.lock()
	st.standbyFailure = err.Error()
	if !errors.Is(err, errNoStandby) {
		var delay time.Duration
		delay, st.standbyFailures = process.DefaultBackoff().Next(st.standbyFailures, ran, 0)
		s.keepStandby(now, st, delay)
	}
	now.unlock()
	st.log.Error("stage has no standby", "error", err)
	s.events.announce(Event{Kind: StandbyFailed, Stage: st.name, To: ended, Reason: err.Error()})
}
