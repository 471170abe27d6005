package supervisor

import (
	"context"
	"time"

	"github.com/catena-dev/catena/host/internal/lifecycle"
	"github.com/catena-dev/catena/host/internal/process"
	"github.com/catena-dev/catena/host/internal/supervisor/generation"
)

// Why a generation is retired.
const (
	replaced          = "replaced"
	overtakenByChange = "a change of the chain was faster"
)

// retire ends a generation that the requests do not go to any more: what it has of them
// finishes, its watches end over time, its pre-shutdown hooks run. The policy is the one
// that the stage has when that begins.
func (s *Supervisor) retire(st *stage, g *generation.Generation, why string) {
	now := s.lock()
	st.state.Retire(g.ID())
	err := st.state.Advance(g.ID(), lifecycle.Draining)
	policy := st.spec.Policy
	now.unlock()
	if err != nil { // it has ended, and the requests that wait for it must not wait longer
		s.forget(st, g)
		return
	}
	key := "stages." + st.name + ".drainTimeout"
	ctx, cancel := process.WithTimeout(s.background, policy.DrainTimeout, key)
	g.Drain(ctx, policy.DrainSpread)
	if s.opts.AwaitEmpty != nil {
		// The stage has counted what has reached it. A request may be on its way still.
		_ = s.opts.AwaitEmpty(ctx, g.Listener().Path())
	}
	cancel()
	if why == overtakenByChange {
		g.Kill() // it has not begun what its hooks would end
		s.end(st, g, why)
		return
	}
	// The hooks have that time too, whatever of it the requests have taken.
	ctx, cancel = process.WithTimeout(s.background, policy.DrainTimeout, key)
	defer cancel()
	if err := lifecycle.RunPreShutdown(ctx, g.PreShutdownHooks()); err != nil {
		st.log.Warn("pre-shutdown hook of the old generation failed", "generation", g.ID(), "error", err)
	}
	s.stop(st, g, why)
}

// stop ends a process, with Stop first and by force when that takes too long.
func (s *Supervisor) stop(st *stage, g *generation.Generation, why string) {
	s.stopWithin(st, g, why, generation.StopTimeout)
}

func (s *Supervisor) stopWithin(st *stage, g *generation.Generation, why string, timeout time.Duration) {
	now := s.lock()
	retired := st.state.State(g.ID()).Ended()
	st.state.Retire(g.ID())
	now.unlock()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	if err := g.Stop(ctx); err != nil && !retired {
		st.log.Warn("stage did not stop by itself", "generation", g.ID(), "error", err)
	}
	s.end(st, g, why)
}

// discard ends a generation that did not come up, at once.
func (s *Supervisor) discard(st *stage, g *generation.Generation) {
	now := s.lock()
	// Not retired: it has failed.
	st.state.Ended(g.ID(), "did not come up")
	now.unlock()
	g.Kill()
	s.forget(st, g)
}

// end takes note of the end of a generation that was retired.
func (s *Supervisor) end(st *stage, g *generation.Generation, why string) {
	now := s.lock()
	st.state.Ended(g.ID(), why)
	now.unlock()
	s.forget(st, g)
}
