package supervisor

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/catena-dev/catena/host/internal/generation"
	"github.com/catena-dev/catena/host/internal/lifecycle"
	"github.com/catena-dev/catena/host/internal/process"
)

// activateTimeout bounds the takeover of a standby, which may hang like any process.
const activateTimeout = 2 * time.Second

// refuse makes the relay refuse requests for the stage of a generation that has ended
// and has not been replaced for the given time, those that wait too.
func (s *stage) refuse(g *generation.Generation, after time.Duration) {
	held := s.of.lock()
	refused := s.guarded.machine.HoldExpired(g.ID())
	if refused {
		held.publish()
		held.events.emit(Event{Kind: Refused, Stage: s.name, Generation: g.ID(), Took: after})
	}
	held.unlock()
	if refused {
		g.Listener().Refuse()
		s.log.Warn("requests for the stage are refused until it is back", "after", after)
	}
}

// takeOver puts the standby in place of a generation that has just ended. It returns
// what has to be done if that cannot be.
func (s *stage) takeOver(dead *generation.Generation, ended time.Time) lifecycle.Decision {
	held := s.of.lock()
	g := s.guarded.generations[s.guarded.machine.Standby()]
	held.unlock()
	err := s.activate(dead, g)
	if err == nil {
		took := time.Since(ended)
		s.log.Info("standby has taken over", "from", dead.ID(), "to", g.ID(), "pid", g.PID(), "took", took.Round(time.Millisecond))
		s.of.events.announce(Event{Kind: TookOver, Stage: s.name, From: dead.ID(), To: g.ID(), Took: took})
		s.cameBack(dead, g)
		s.forget(dead)
		return lifecycle.Nothing
	}
	s.log.Error("standby could not take over", "generation", id(g), "error", err)
	s.of.events.announce(Event{Kind: StandbyFailed, Stage: s.name, To: id(g), Reason: err.Error()})
	held = s.of.lock()
	if g != nil && s.guarded.machine.Standby() == g.ID() {
		s.guarded.machine.Dismiss()
	}
	var decision lifecycle.Decision
	if s.guarded.machine.Waits(dead.ID()) {
		decision = s.guarded.machine.Successor()
		held.decided(s, dead, decision)
	}
	held.unlock()
	if g != nil {
		s.live(g).discard()
	}
	return decision
}

func (s *stage) activate(dead, g *generation.Generation) error {
	if g == nil {
		return fmt.Errorf("it has ended, too")
	}
	ctx, cancel := context.WithTimeout(s.of.background, activateTimeout)
	defer cancel()
	if err := g.Activate(ctx); err != nil {
		return err
	}
	held := s.of.lock()
	defer held.unlock()
	if err := held.serve(s, g, dead.ID()); err != nil {
		return err
	}
	s.guarded.restarts.add(time.Now())
	held.publish()
	return nil
}

// restart brings up a generation in place of dead, which has ended after the given
// time, or is nil if the stage has never been up, however often it takes, unless a
// planned change does so first.
func (s *stage) restart(dead *generation.Generation, ran time.Duration) {
	defer func() { s.forget(existing(dead)...) }()
	policy, logged := process.DefaultBackoff(), ""
	held := s.of.lock()
	attached := s.guarded.spec.Attach != ""
	held.unlock()
	if attached {
		policy.Max = time.Second // its user is at work on it
	}
	for s.waits(dead) {
		if !sleep(s.of.background, s.nextDelay(policy, ran)) || s.of.isStopping() {
			return
		}
		err := s.tryRestart(dead)
		if err == nil || s.of.isStopping() || !s.waits(dead) {
			return
		}
		held = s.of.lock()
		s.guarded.failure = err.Error()
		held.unlock()
		if text := err.Error(); !attached || text != logged { // an attached stage may be away for hours
			logged = text
			s.log.Error("stage could not be restarted, trying again", "error", err)
		}
		ran = 0
	}
}

func existing(g *generation.Generation) []*generation.Generation {
	if g == nil {
		return nil
	}
	return []*generation.Generation{g}
}

func (s *stage) waits(dead *generation.Generation) bool {
	held := s.of.lock()
	defer held.unlock()
	return s.guarded.machine.Waits(id(dead))
}

// nextDelay counts a failure and returns the delay before the next attempt.
func (s *stage) nextDelay(policy process.Backoff, ran time.Duration) (delay time.Duration) {
	held := s.of.lock()
	defer held.unlock()
	delay, s.guarded.failures = policy.Next(s.guarded.failures, ran, rand.Float64())
	if s.guarded.machine.Waits(s.guarded.machine.Current()) {
		s.guarded.nextStart = time.Now().Add(delay)
	}
	return delay
}

// tryRestart makes one attempt. There is nothing left to do when it returns nil.
func (s *stage) tryRestart(dead *generation.Generation) error {
	began := time.Now()
	// A planned change that has the stage can take long, or hang, so that a stage which was
	// up is restarted beside it: whichever is ready first serves, and the change takes over
	// from the generation that serves then.
	launching := s.launching.TryAcquire(1)
	if !launching && dead == nil {
		if acquire(s.of.background, s.launching) != nil {
			return nil // the server is stopping
		}
		launching = true
	}
	if launching {
		defer s.launching.Release(1)
	}
	if !s.waits(dead) {
		return nil
	}
	g, err := s.replacement(dead)
	if err != nil {
		return err
	}
	held := s.of.lock()
	overtaken := !s.guarded.machine.Waits(id(dead))
	if !overtaken {
		err = held.serve(s, g, id(dead))
	}
	hooksDue := held.hooksDue
	if !overtaken && err == nil {
		if dead != nil {
			s.guarded.restarts.add(time.Now())
		}
		held.publish()
	}
	held.unlock()
	if overtaken {
		// It finishes what it has taken from the backlog of its socket.
		s.of.goFor(g, func() { s.live(g).retire(overtakenByChange) })
		return nil
	}
	if err != nil {
		s.live(g).discard()
		return err
	}
	took := time.Since(began)
	s.log.Info("stage is back", "generation", g.ID(), "pid", g.PID(), "took", took.Round(time.Millisecond))
	s.of.events.announce(Event{Kind: Restarted, Stage: s.name, From: id(dead), To: g.ID(), Took: took})
	s.cameBack(dead, g)
	if hooksDue {
		s.of.goFor(g, func() { s.live(g).runHooksOrKill() })
	}
	s.renewStandby(0)
	s.of.reconcile()
	return nil
}

// replacement brings up a generation on the socket of the dead one, or on a new one if
// there is none, to the point at which it could serve.
func (s *stage) replacement(dead *generation.Generation) (*generation.Generation, error) {
	r := s.of.rolloutOf()
	m := r.member(s)
	if m == nil {
		return nil, fmt.Errorf("stage %q is not in the chain", s.name)
	}
	m.launching = true
	inherited := generation.Report{Claims: knownClaims(m.spec.LastClaims)}
	if dead != nil {
		m.listener, inherited = dead.Listener(), dead.Report()
	}
	r.prepared = func(m *member) error {
		m.generation.Inherit(inherited)
		return nil
	}
	if err := r.run(s.of.background); err != nil {
		r.discard()
		return nil, err
	}
	return m.generation, nil
}

// absent takes note of why a stage that is not required has not come up.
func (s *stage) absent(err error) {
	held := s.of.lock()
	s.guarded.failure = err.Error()
	held.publish()
	held.unlock()
	s.log.Error("stage is not required and has not come up, trying again", "error", err)
}
