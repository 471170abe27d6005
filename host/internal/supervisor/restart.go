package supervisor

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/catena-dev/catena/host/internal/lifecycle"
	"github.com/catena-dev/catena/host/internal/process"
)

// supervise waits for the end of a generation and, unless the end was asked for,
// brings up the next.
func (s *Supervisor) supervise(g *generation) {
	since := time.Now()
	select {
	case <-g.proc.Done():
	case <-s.background.Done():
		return
	}
	s.revoke(g)
	if s.isStopping() {
		return
	}
	err := g.proc.Err()
	_ = g.machine.To(lifecycle.Failed, errorText(err))
	g.stage.log.Error("stage ended, restarting it", "generation", g.id, "error", err)
	s.restart(g.stage, time.Since(since))
}

// restart brings up a new generation of a stage, however often it takes. Ran is
// how long the last one has served.
func (s *Supervisor) restart(st *stage, ran time.Duration) {
	policy := process.DefaultBackoff()
	for {
		var delay time.Duration
		delay, st.failures = policy.Next(st.failures, ran, rand.Float64())
		if !sleep(s.background, delay) || s.isStopping() {
			return
		}
		err := s.tryRestart(st)
		if err == nil || s.isStopping() {
			return
		}
		st.log.Error("stage could not be restarted, trying again", "attempt", st.failures, "error", err)
		ran = 0
	}
}

func (s *Supervisor) tryRestart(st *stage) error {
	began := time.Now()
	ctx, cancel := context.WithTimeout(s.background, st.spec.StartTimeout)
	defer cancel()
	g, err := st.launch(ctx)
	if err != nil {
		return err
	}
	s.admit(g)
	if err := s.bringUp(ctx, g); err != nil {
		s.discard(g)
		return err
	}
	st.log.Info("stage is back", "generation", g.id, "pid", g.proc.PID(), "took", time.Since(began).Round(time.Millisecond))
	return nil
}

func (s *Supervisor) bringUp(ctx context.Context, g *generation) error {
	st := g.stage
	if _, err := st.Configure(ctx, st.behindReports(s)); err != nil {
		return err
	}
	if err := st.PrepareRun(ctx); err != nil {
		return err
	}
	if err := s.serve(g); err != nil {
		return err
	}
	s.publish()
	if s.areHooksDue() {
		s.running.Go(func() {
			s.runHooks(g, func(_ lifecycle.Hook, err error) {
				if err != nil {
					st.log.Error("ending the stage, which will be restarted", "generation", g.id, "error", err)
					killCtx, cancel := context.WithTimeout(context.Background(), stopTimeout)
					defer cancel()
					_ = g.proc.Kill(killCtx)
				}
			})
		})
	}
	return nil
}

// discard ends a generation that did not come up.
func (s *Supervisor) discard(g *generation) {
	s.revoke(g)
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	if err := g.proc.Kill(ctx); err != nil {
		g.stage.log.Warn("process of a failed start could not be killed", "pid", g.proc.PID(), "error", err)
	}
	_ = g.machine.To(lifecycle.Failed, "start failed")
}

// behindReports are the latest reports of the stages behind this one, the
// nearest first.
func (s *stage) behindReports(sup *Supervisor) []lifecycle.Report[report] {
	var behind []lifecycle.Report[report]
	for i, st := range sup.stages {
		if st == s {
			for _, b := range sup.stages[i+1:] {
				behind = append(behind, lifecycle.Report[report]{Stage: b.spec.Name, Report: b.reported()})
			}
		}
	}
	return behind
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

func errorText(err error) string {
	if err == nil || errors.Is(err, context.Canceled) {
		return "ended"
	}
	return err.Error()
}
