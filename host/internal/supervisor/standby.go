package supervisor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/catena-dev/catena/host/internal/lifecycle"
	"github.com/catena-dev/catena/host/internal/process"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// activateTimeout bounds the takeover of a standby, which may hang like any process.
const activateTimeout = 2 * time.Second

var errNoStandby = errors.New("does not announce in Describe that it can stand by; it runs without a standby")

// renewStandby ends the standby of a stage, which was one for another generation, and
// makes another in the background if the stage is to have one.
func (s *Supervisor) renewStandby(st *stage) { s.renewStandbyAfter(st, 0) }

func (s *Supervisor) renewStandbyAfter(st *stage, delay time.Duration) {
	st.mu.Lock()
	old, current := st.standby, st.current
	st.standby, st.standbyFailure = nil, ""
	st.keeper++ // whoever makes a standby now, makes it in vain
	keeper := st.keeper
	wanted := current != nil && st.spec.Standby && st.spec.Attach == ""
	st.mu.Unlock()
	if old != nil {
		s.running.Go(func() { s.dismiss(old, "another takes its place") })
	}
	if wanted {
		s.running.Go(func() { s.keepStandby(current, keeper, delay) })
	}
}

// keeps tells whether a standby for g is still to be made by that keeper. The caller
// holds mu.
func (s *stage) keeps(g *generation, keeper int) bool {
	return s.current == g && s.keeper == keeper && !s.gone
}

func (s *Supervisor) keeping(g *generation, keeper int) bool {
	g.stage.mu.Lock()
	defer g.stage.mu.Unlock()
	return g.stage.keeps(g, keeper) && !s.isStopping()
}

// dismiss ends a standby.
func (s *Supervisor) dismiss(g *generation, why string) {
	g.retired.Store(true)
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	g.stop(ctx, why)
	s.forget(g)
}

// keepStandby sees to it that the current generation of a stage has a standby, from the
// end of a delay on, for as long as it is the current one.
func (s *Supervisor) keepStandby(current *generation, keeper int, delay time.Duration) {
	st, policy, failures := current.stage, process.DefaultBackoff(), 0
	for sleep(s.background, delay) && s.keeping(current, keeper) && current.proc.Err() == nil {
		began := time.Now()
		g, err := s.newStandby(current, keeper)
		if err == nil {
			st.log.Info("standby is ready", "generation", g.id, "pid", g.proc.PID(), "took", time.Since(began).Round(time.Millisecond))
			st.emit(Event{Kind: StandbyReady, From: current.id, To: g.id, Took: time.Since(began)})
			if err = s.awaitStandby(st, g); err == nil {
				return // it serves, or is not wanted any more
			}
		}
		if !s.keeping(current, keeper) {
			return
		}
		st.setStandbyFailure(err)
		st.log.Error("stage has no standby", "error", err)
		st.emit(Event{Kind: StandbyFailed, Reason: err.Error()})
		if errors.Is(err, errNoStandby) {
			return
		}
		delay, failures = policy.Next(failures, time.Since(began), 0)
	}
}

func (s *stage) setStandbyFailure(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.standbyFailure = err.Error()
}

// newStandby brings up a standby for the current generation of a stage, on its socket,
// to the point at which it could be ready.
func (s *Supervisor) newStandby(current *generation, keeper int) (*generation, error) {
	st := current.stage
	if !current.proc.Description().GetStandby() {
		return nil, fmt.Errorf("stage %q: %w", st.name, errNoStandby)
	}
	// Not current.spec: what the configuration has changed since needs no new process.
	g, err := s.prepare(s.background, st, st.present(), current.listener, true)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(s.background, g.spec.StartTimeout)
	defer cancel()
	if err = s.awaitReady(ctx, g); err == nil {
		err = g.machine.To(lifecycle.StandingBy, "")
	}
	if err != nil {
		s.discard(g)
		return nil, fmt.Errorf("standby of stage %q: %w", st.name, err)
	}
	st.mu.Lock()
	if st.keeps(current, keeper) {
		st.standby, st.standbyFailure = g, ""
	}
	mine := st.standby == g
	st.mu.Unlock()
	if !mine {
		s.discard(g)
		return nil, fmt.Errorf("stage %q was changed while its standby came up", st.name)
	}
	return g, nil
}

// awaitStandby returns when a standby has been taken for something else, or with the
// reason why it has ended.
func (s *Supervisor) awaitStandby(st *stage, g *generation) error {
	for alive := time.Now(); ; {
		interval, limit := st.interval()
		select {
		case <-g.proc.Done():
		case <-s.background.Done():
			return nil
		case <-time.After(interval):
		}
		if !st.standsBy(g) {
			return nil
		}
		err := g.proc.Err()
		if err == nil {
			if err = s.stillAnswers(g, interval); err == nil || limit == 0 {
				alive = time.Now()
			}
			if limit == 0 || time.Since(alive) < limit {
				continue
			}
			s.kill(g)
		}
		if st.takeStandby(g) {
			s.forget(g)
			_ = g.machine.To(lifecycle.Failed, err.Error())
			return err
		}
		return nil
	}
}

func (s *Supervisor) stillAnswers(g *generation, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(s.background, timeout)
	defer cancel()
	return g.answers(ctx)
}

// hasStandby tells whether there is one for the current generation.
func (s *stage) hasStandby() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.standby != nil && s.current != nil && s.standby.listener == s.current.listener
}

func (s *stage) standsBy(g *generation) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.standby == g
}

// takeStandby makes g stand by no longer, if it does.
func (s *stage) takeStandby(g *generation) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.standby != g || g == nil {
		return false
	}
	s.standby = nil
	return true
}

// takeOver puts the standby in the place of a generation that has just ended. It says
// whether it could.
func (s *Supervisor) takeOver(dead *generation, ended time.Time) bool {
	st := dead.stage
	st.mu.Lock()
	g := st.standby
	st.mu.Unlock()
	if g == nil || g.listener != dead.listener || !st.takeStandby(g) {
		return false
	}
	err := s.activate(dead, g)
	if err != nil {
		st.log.Error("standby could not take over", "generation", g.id, "error", err)
		st.emit(Event{Kind: StandbyFailed, To: g.id, Reason: err.Error()})
		s.discard(g)
		return false
	}
	took := time.Since(ended)
	st.log.Info("standby has taken over", "from", dead.id, "to", g.id, "pid", g.proc.PID(), "took", took.Round(time.Millisecond))
	st.emit(Event{Kind: TookOver, From: dead.id, To: g.id, Took: took})
	return true
}

func (s *Supervisor) activate(dead, g *generation) error {
	ctx, cancel := context.WithTimeout(s.background, activateTimeout)
	defer cancel()
	if _, err := g.proc.Client().Activate(ctx, &stagev1.ActivateRequest{}); err != nil {
		return err
	}
	s.publishing.Lock()
	defer s.publishing.Unlock()
	if !g.stage.waitsFor(dead) {
		return errors.New("another generation has taken the place")
	}
	if err := s.take(g); err != nil {
		return err
	}
	g.stage.replaced(dead)
	s.publishLocked()
	return nil
}
