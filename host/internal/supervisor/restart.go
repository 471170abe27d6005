package supervisor

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/catena-dev/catena/host/internal/lifecycle"
	"github.com/catena-dev/catena/host/internal/process"
)

// supervise waits for the end of a generation and, unless the end was wanted,
// brings up the next.
func (s *Supervisor) supervise(g *generation) {
	since := time.Now()
	select {
	case <-g.proc.Done():
	case <-s.background.Done():
		return
	}
	s.forget(g)
	if s.isStopping() || g.retired.Load() {
		return
	}
	st, err := g.stage, g.proc.Err()
	_ = g.machine.To(lifecycle.Failed, err.Error())
	st.failed(err)
	st.log.Error("stage ended, restarting it", "generation", g.id, "error", err)

	hold := time.AfterFunc(s.opts.HoldTimeout, func() { s.takeDown(g) })
	defer hold.Stop()
	s.restart(g, time.Since(since))
}

// takeDown refuses further requests for the stage of a generation that has ended
// and has not been replaced.
func (s *Supervisor) takeDown(g *generation) {
	st := g.stage
	st.mu.Lock()
	gone := st.current == g && !s.isStopping()
	st.down = st.down || gone
	st.mu.Unlock()
	if gone {
		st.log.Warn("requests for the stage are refused until it is back", "after", s.opts.HoldTimeout)
		s.publish()
	}
}

// restart brings up a generation in the place of one that has ended after the
// given time, however often it takes, unless a swap does so first.
func (s *Supervisor) restart(dead *generation, ran time.Duration) {
	st, policy := dead.stage, process.DefaultBackoff()
	if dead.spec.Attach != "" {
		policy.Max = time.Second // somebody is at work on it
	}
	for st.generation() == dead {
		delay := st.nextDelay(policy, ran)
		if !sleep(s.background, delay) || s.isStopping() {
			return
		}
		err := s.tryRestart(dead)
		if err == nil || s.isStopping() {
			return
		}
		st.failed(err)
		st.log.Error("stage could not be restarted, trying again", "error", err)
		ran = 0
	}
}

// nextDelay counts a failure and returns the delay before the next attempt.
func (s *stage) nextDelay(policy process.Backoff, ran time.Duration) (delay time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.restarts++
	delay, s.failures = policy.Next(s.failures, ran, rand.Float64())
	return delay
}

func (s *stage) failed(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failure = err.Error()
}

func (s *Supervisor) tryRestart(dead *generation) error {
	began := time.Now()
	st := dead.stage
	st.changing.Lock()
	defer st.changing.Unlock()
	if st.generation() != dead {
		return nil
	}
	g, err := s.prepare(s.background, st, dead.spec, dead.listener)
	if err != nil {
		return err
	}
	g.inherit(dead.reported())
	if _, err := s.serve(g); err != nil {
		s.discard(g)
		return err
	}
	s.publish()
	st.log.Info("stage is back", "generation", g.id, "pid", g.proc.PID(), "took", time.Since(began).Round(time.Millisecond))
	if s.areHooksDue() {
		s.running.Go(func() { s.runHooksOrKill(g) })
	}
	return nil
}

// prepare brings up a generation to the point at which it could serve.
func (s *Supervisor) prepare(ctx context.Context, st *stage, spec Spec, l *process.Listener) (*generation, error) {
	g, err := s.launch(ctx, st, spec, l)
	if err != nil {
		return nil, err
	}
	if err = g.validateConfig(ctx); err == nil {
		_, err = g.Configure(ctx, st.behind(s.stages))
	}
	if err == nil {
		err = g.PrepareRun(ctx)
	}
	if err != nil {
		s.discard(g)
		return nil, err
	}
	s.running.Go(func() { g.watch(s.background, s.event) })
	return g, nil
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

// discard ends a generation that did not come up.
func (s *Supervisor) discard(g *generation) {
	g.retired.Store(true)
	s.kill(g)
	s.forget(g)
	_ = g.machine.To(lifecycle.Failed, "did not come up")
	if current := g.stage.generation(); current == nil || current.listener != g.listener {
		_ = g.listener.Close()
	}
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
