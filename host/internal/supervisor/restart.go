package supervisor

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/catena-dev/catena/host/internal/lifecycle"
	"github.com/catena-dev/catena/host/internal/process"
)

// supervise waits for the end of a generation and, unless the end was wanted, sees to it
// that another takes its place: the one before, if it is on probation, its standby, or a
// new one.
func (s *Supervisor) supervise(g *generation) {
	since := time.Now()
	select {
	case <-g.proc.Done():
	case <-s.background.Done():
		return
	}
	ended := time.Now()
	s.forget(g)
	if g.retired.Load() || s.background.Err() != nil {
		return
	}
	if s.isStopping() {
		g.stage.lost(g)
		s.refuse(g)
		return
	}
	if p := s.probation.Load(); p != nil && p.ended(g) {
		return
	}
	st, ran := g.stage, ended.Sub(since)
	if s.takeOver(g, ended) {
		st.lost(g)
		s.renewStandbyAfter(st, st.nextDelay(process.DefaultBackoff(), ran))
		return
	}
	held := s.hold(g)
	st.lost(g)
	if held {
		_ = g.machine.To(lifecycle.BackingOff, "")
	}
	limit := time.Duration(s.holdTimeout.Load())
	hold := time.AfterFunc(limit, func() { s.takeDown(g, limit) })
	defer hold.Stop()
	s.restart(st, g, ran)
}

// SetHoldTimeout changes how long requests wait for stages that end from now on.
func (s *Supervisor) SetHoldTimeout(d time.Duration) { s.holdTimeout.Store(int64(d)) }

// lost takes note of how a generation has ended.
func (s *stage) lost(g *generation) {
	err := g.proc.Err() // which may take a moment
	_ = g.machine.To(lifecycle.Failed, err.Error())
	s.failed(err)
	s.log.Error("stage has ended", "generation", g.id, "error", err)
}

// hold makes requests wait for the generation that takes the place of one that has ended.
// It returns false if one has already.
func (s *Supervisor) hold(g *generation) bool {
	st := g.stage
	st.mu.Lock()
	st.held = st.current == g
	held := st.held
	st.mu.Unlock()
	if held {
		s.publish()
		st.emit(Event{Kind: Held, Generation: g.id})
	}
	return held
}

// takeDown refuses further requests for the stage of a generation that has ended
// and has not been replaced for the given time.
func (s *Supervisor) takeDown(g *generation, after time.Duration) {
	if !s.refuse(g) {
		return
	}
	g.stage.log.Warn("requests for the stage are refused until it is back", "after", after)
	g.stage.emit(Event{Kind: Refused, Generation: g.id, Took: after})
}

// refuse makes the relay refuse requests for the stage of a generation that has ended,
// those that wait too. It returns false if another has taken its place, or that was so.
func (s *Supervisor) refuse(g *generation) bool {
	st := g.stage
	st.mu.Lock()
	gone := st.current == g && !st.down
	st.down = st.down || gone
	st.mu.Unlock()
	if gone {
		s.publish()
		g.listener.Refuse()
	}
	return gone
}

// restart brings up a generation in the place of dead, which has ended after the given
// time, or is nil if the stage has never been up, however often it takes, unless a
// planned change does so first.
func (s *Supervisor) restart(st *stage, dead *generation, ran time.Duration) {
	policy, said := process.DefaultBackoff(), ""
	attached := st.present().Attach != ""
	if attached {
		policy.Max = time.Second // somebody is at work on it
	}
	for st.waitsFor(dead) {
		delay := st.nextDelay(policy, ran)
		if !sleep(s.background, delay) || s.isStopping() {
			return
		}
		err := s.tryRestart(st, dead)
		if err == nil || s.isStopping() || !st.waitsFor(dead) {
			return
		}
		st.failed(err)
		if text := err.Error(); !attached || text != said { // somebody may take hours
			said = text
			st.log.Error("stage could not be restarted, trying again", "error", err)
		}
		ran = 0
	}
}

// nextDelay counts a failure and returns the delay before the next attempt.
func (s *stage) nextDelay(policy process.Backoff, ran time.Duration) (delay time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delay, s.failures = policy.Next(s.failures, ran, rand.Float64())
	return delay
}

// replaced counts that another generation is in the place of dead, nil if the stage has
// never been up before.
func (s *stage) replaced(dead *generation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if dead != nil {
		s.restarts++
	}
}

func (s *stage) failed(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failure = err.Error()
}

func (s *Supervisor) tryRestart(st *stage, dead *generation) error {
	began := time.Now()
	done, err := s.turnToRestart(st, dead)
	if err != nil {
		return nil // the server is stopping
	}
	defer done()
	if !st.waitsFor(dead) {
		return nil
	}
	g, err := s.replacement(st, dead)
	if err != nil {
		return err
	}
	s.publishing.Lock()
	if !st.waitsFor(dead) {
		s.publishing.Unlock()
		s.running.Go(func() { s.withdraw(g) })
		return nil
	}
	if err = s.take(g); err == nil {
		st.replaced(dead)
		s.publishLocked()
	}
	s.publishing.Unlock()
	if err != nil {
		s.discard(g)
		return err
	}
	took := time.Since(began)
	st.log.Info("stage is back", "generation", g.id, "pid", g.proc.PID(), "took", took.Round(time.Millisecond))
	st.emit(Event{Kind: Restarted, From: dead.ID(), To: g.id, Took: took})
	if s.areHooksDue() {
		s.running.Go(func() { s.runHooksOrKill(g) })
	}
	s.renewStandby(st)
	s.reconcile()
	return nil
}

// runHooksOrKill runs the post-start hooks of a generation that has taken over. One
// that fails ends the process, which is restarted then.
func (s *Supervisor) runHooksOrKill(g *generation) {
	s.runHooks(g, func(_ lifecycle.Hook, err error) {
		if err == nil || g.proc.Err() != nil {
			return
		}
		g.stage.log.Error("ending the stage, which will be restarted", "generation", g.id, "error", err)
		s.kill(g)
	})
}

func (s *Supervisor) kill(g *generation) {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	if err := g.proc.Kill(ctx); err != nil {
		g.stage.log.Warn("process could not be killed", "pid", g.proc.PID(), "error", err)
	}
}

// sleep waits for d and reports whether ctx is still on.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
