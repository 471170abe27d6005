package supervisor

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/catena-dev/catena/host/internal/lifecycle"
	"github.com/catena-dev/catena/host/internal/process"
	"github.com/catena-dev/catena/host/internal/supervisor/generation"
)

// activateTimeout bounds the takeover of a standby, which may hang like any process.
const activateTimeout = 2 * time.Second

// awaitEnd waits for the end of a process and does what has to be done then.
func (s *Supervisor) awaitEnd(st *stage, g *generation.Generation) {
	launched := time.Now()
	select {
	case <-g.Done():
	case <-s.background.Done():
		return
	}
	s.ended(st, g, time.Since(launched))
}

// ended is what happens when a process has ended: the one place where that is decided. It
// returns when another process serves, or when there is nothing more to do.
func (s *Supervisor) ended(st *stage, g *generation.Generation, ran time.Duration) {
	at, err := time.Now(), g.Err()
	s.killedAtLimit(st, g, err)
	now := s.lock()
	retired := st.state.Retired(g.ID())
	decision := st.state.Ended(g.ID(), err.Error())
	delete(now.callers, g.Token())
	st.usageEnded(now, g)
	now.decided(st, g, decision)
	if !retired && decision != lifecycle.Nothing {
		st.failure = err.Error()
	}
	now.unlock()
	if !retired && decision != lifecycle.Nothing {
		st.log.Error("stage has ended", "generation", g.ID(), "error", err)
	}
	s.forget(st, g)
	switch decision {
	case lifecycle.Accept:
		s.endProbation(fmt.Sprintf("the old generation of stage %q has ended, there is no way back", st.name))
		return
	case lifecycle.RollBack:
		if s.rollBack(fmt.Sprintf("the new generation of stage %q has ended", st.name)) {
			return
		}
		now = s.lock()
		decision = st.state.Succeed()
		now.decided(st, g, decision)
		now.unlock()
	}
	if decision == lifecycle.TakeOver {
		if decision = s.takeOver(st, g, at); decision == lifecycle.Nothing {
			s.renewStandbyAfter(st, s.nextDelay(st, process.DefaultBackoff(), ran))
			return
		}
	}
	switch decision {
	case lifecycle.RenewStandby:
		s.standbyFailed(st, g.ID(), ran, err)
	case lifecycle.Refuse:
		g.Listener().Refuse()
	case lifecycle.Restart:
		limit := s.currentHoldTimeout()
		hold := time.AfterFunc(limit, func() { s.refuse(st, g, limit) })
		defer hold.Stop()
		s.restart(st, g, ran)
	}
}

func (s *Supervisor) currentHoldTimeout() time.Duration {
	now := s.lock()
	defer now.unlock()
	return now.holdTimeout
}

// refuse makes the relay refuse requests for the stage of a generation that has ended
// and has not been replaced for the given time, those that wait too.
func (s *Supervisor) refuse(st *stage, g *generation.Generation, after time.Duration) {
	now := s.lock()
	refused := st.state.HoldExpired(g.ID())
	if refused {
		now.publish()
		now.events.emit(Event{Kind: Refused, Stage: st.name, Generation: g.ID(), Took: after})
	}
	now.unlock()
	if refused {
		g.Listener().Refuse()
		st.log.Warn("requests for the stage are refused until it is back", "after", after)
	}
}

// takeOver puts the standby in the place of a generation that has just ended. It returns
// what has to be done if that cannot be.
func (s *Supervisor) takeOver(st *stage, dead *generation.Generation, ended time.Time) lifecycle.Decision {
	now := s.lock()
	g := st.generations[st.state.Standby()]
	now.unlock()
	err := s.activate(st, dead, g)
	if err == nil {
		took := time.Since(ended)
		st.log.Info("standby has taken over", "from", dead.ID(), "to", g.ID(), "pid", g.PID(), "took", took.Round(time.Millisecond))
		s.events.announce(Event{Kind: TookOver, Stage: st.name, From: dead.ID(), To: g.ID(), Took: took})
		st.cameBack(s, dead, g)
		s.forget(st, dead)
		return lifecycle.Nothing
	}
	st.log.Error("standby could not take over", "generation", id(g), "error", err)
	s.events.announce(Event{Kind: StandbyFailed, Stage: st.name, To: id(g), Reason: err.Error()})
	now = s.lock()
	if g != nil && st.state.Standby() == g.ID() {
		st.state.Dismiss()
	}
	var decision lifecycle.Decision
	if st.state.Waits(dead.ID()) {
		decision = st.state.Succeed()
		now.decided(st, dead, decision)
	}
	now.unlock()
	if g != nil {
		s.discard(st, g)
	}
	return decision
}

func (s *Supervisor) activate(st *stage, dead, g *generation.Generation) error {
	if g == nil {
		return fmt.Errorf("it has ended, too")
	}
	ctx, cancel := context.WithTimeout(s.background, activateTimeout)
	defer cancel()
	if err := g.Activate(ctx); err != nil {
		return err
	}
	now := s.lock()
	defer now.unlock()
	if err := now.serve(st, g, dead.ID()); err != nil {
		return err
	}
	st.restarts++
	now.publish()
	return nil
}

// restart brings up a generation in the place of dead, which has ended after the given
// time, or is nil if the stage has never been up, however often it takes, unless a
// planned change does so first.
func (s *Supervisor) restart(st *stage, dead *generation.Generation, ran time.Duration) {
	defer func() { s.forget(st, existing(dead)...) }()
	policy, logged := process.DefaultBackoff(), ""
	now := s.lock()
	attached := st.spec.Attach != ""
	now.unlock()
	if attached {
		policy.Max = time.Second // its user is at work on it
	}
	for s.waits(st, dead) {
		if !sleep(s.background, s.nextDelay(st, policy, ran)) || s.isStopping() {
			return
		}
		err := s.tryRestart(st, dead)
		if err == nil || s.isStopping() || !s.waits(st, dead) {
			return
		}
		now = s.lock()
		st.failure = err.Error()
		now.unlock()
		if text := err.Error(); !attached || text != logged { // an attached stage may be away for hours
			logged = text
			st.log.Error("stage could not be restarted, trying again", "error", err)
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

func (s *Supervisor) waits(st *stage, dead *generation.Generation) bool {
	now := s.lock()
	defer now.unlock()
	return st.state.Waits(id(dead))
}

// nextDelay counts a failure and returns the delay before the next attempt.
func (s *Supervisor) nextDelay(st *stage, policy process.Backoff, ran time.Duration) (delay time.Duration) {
	now := s.lock()
	defer now.unlock()
	delay, st.failures = policy.Next(st.failures, ran, rand.Float64())
	if st.state.Waits(st.state.Current()) {
		st.nextStart = time.Now().Add(delay)
	}
	return delay
}

// tryRestart makes one attempt. There is nothing left to do when it returns nil.
func (s *Supervisor) tryRestart(st *stage, dead *generation.Generation) error {
	began := time.Now()
	// A planned change that has the stage can take long, or hang, so that a stage which was
	// up is restarted beside it: whichever is ready first serves, and the change takes over
	// from the generation that serves then.
	held := st.launching.TryAcquire(1)
	if !held && dead == nil {
		if acquire(s.background, st.launching) != nil {
			return nil // the server is stopping
		}
		held = true
	}
	if held {
		defer st.launching.Release(1)
	}
	if !s.waits(st, dead) {
		return nil
	}
	g, err := s.replacement(st, dead)
	if err != nil {
		return err
	}
	now := s.lock()
	overtaken := !st.state.Waits(id(dead))
	if !overtaken {
		err = now.serve(st, g, id(dead))
	}
	hooksDue := now.hooksDue
	if !overtaken && err == nil {
		if dead != nil {
			st.restarts++
		}
		now.publish()
	}
	now.unlock()
	if overtaken {
		// It finishes what it has taken from the backlog of its socket.
		s.goFor(g, func() { s.retire(st, g, overtakenByChange) })
		return nil
	}
	if err != nil {
		s.discard(st, g)
		return err
	}
	took := time.Since(began)
	st.log.Info("stage is back", "generation", g.ID(), "pid", g.PID(), "took", took.Round(time.Millisecond))
	s.events.announce(Event{Kind: Restarted, Stage: st.name, From: id(dead), To: g.ID(), Took: took})
	st.cameBack(s, dead, g)
	if hooksDue {
		s.goFor(g, func() { s.runHooksOrKill(st, g) })
	}
	s.renewStandby(st)
	s.reconcile()
	return nil
}

// replacement brings up a generation on the socket of the dead one, or on a new one if
// there is none, to the point at which it could serve.
func (s *Supervisor) replacement(st *stage, dead *generation.Generation) (*generation.Generation, error) {
	r := s.rolloutOf()
	m := r.member(st)
	if m == nil {
		return nil, fmt.Errorf("stage %q is not in the chain", st.name)
	}
	m.launching = true
	inherited := generation.Report{Claims: assumed(m.spec.LastClaims)}
	if dead != nil {
		m.listener, inherited = dead.Listener(), dead.Report()
	}
	r.prepared = func(m *member) error {
		m.generation.Inherit(inherited)
		return nil
	}
	if err := r.run(s.background); err != nil {
		r.discard()
		return nil, err
	}
	return m.generation, nil
}
