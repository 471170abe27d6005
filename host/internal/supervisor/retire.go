package supervisor

import (
	"context"
	"time"

	"github.com/catena-dev/catena/host/internal/generation"
	"github.com/catena-dev/catena/host/internal/lifecycle"
	"github.com/catena-dev/catena/host/internal/process"
)

// Why a generation is retired.
const (
	replaced          = "replaced"
	overtakenByChange = "a change of the chain was faster"
)

// retire ends a generation that the requests do not go to any more: what it has of them
// finishes, its watches end over time, its pre-shutdown hooks run. The policy is the one
// that the stage has when that begins.
func (l live) retire(why string) {
	s, st := l.stage.of, l.stage
	held := s.lock()
	st.guarded.machine.Retire(l.ID())
	err := st.guarded.machine.Advance(l.ID(), lifecycle.Draining)
	policy := st.guarded.spec.Policy
	held.unlock()
	if err != nil { // it has ended, and the requests that wait for it must not wait longer
		st.forget(l.Generation)
		return
	}
	key := "stages." + st.name + ".drainTimeout"
	ctx, cancel := process.WithTimeout(s.background, policy.DrainTimeout, key)
	l.Drain(ctx, policy.DrainSpread)
	if s.outlet.AwaitEmpty != nil {
		// The stage has counted what has reached it. A request may be on its way still.
		_ = s.outlet.AwaitEmpty(ctx, l.Listener().Path())
	}
	cancel()
	if why == overtakenByChange {
		l.Kill() // it has not begun what its hooks would end
		l.end(why)
		return
	}
	// The hooks have that time too, whatever of it the requests have taken.
	ctx, cancel = process.WithTimeout(s.background, policy.DrainTimeout, key)
	defer cancel()
	if err := lifecycle.RunPreShutdown(ctx, l.PreShutdownHooks()); err != nil && s.background.Err() == nil {
		st.log.Warn("pre-shutdown hook of the old generation failed", "generation", l.ID(), "error", err)
	}
	l.stop(why)
}

// hurry has the generations of a stage that drain end their watches now: a process that is launched makes as many
// connections as each of them has, and the host has descriptors for two.
func (held *locked) hurry(st *stage) {
	for _, g := range st.guarded.generations {
		if st.guarded.machine.State(g.ID()) == lifecycle.Draining {
			st.of.goFor(g, func() { g.Drain(st.of.background, 0) })
		}
	}
}

// stop ends a process, with Stop first and by force when that takes too long.
func (l live) stop(why string) {
	l.stopWithin(why, generation.StopTimeout)
}

func (l live) stopWithin(why string, timeout time.Duration) {
	st := l.stage
	held := l.stage.of.lock()
	retired := st.guarded.machine.State(l.ID()).Ended()
	st.guarded.machine.Retire(l.ID())
	held.unlock()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	if err := l.Stop(ctx); err != nil && !retired {
		st.log.Warn("stage did not stop by itself", "generation", l.ID(), "error", err)
	}
	l.end(why)
}

// discard ends a generation that did not come up, at once.
func (l live) discard() {
	held := l.stage.of.lock()
	// Not retired: it has failed.
	l.stage.guarded.machine.Ended(l.ID(), "did not come up")
	held.unlock()
	l.Kill()
	l.stage.forget(l.Generation)
}

// dismiss ends a generation that has done what it was started for, at once.
func (l live) dismiss(why string) {
	held := l.stage.of.lock()
	l.stage.guarded.machine.Retire(l.ID())
	held.unlock()
	l.Kill()
	l.end(why)
}

// end takes note of the end of a generation that was retired.
func (l live) end(why string) {
	held := l.stage.of.lock()
	l.stage.guarded.machine.Ended(l.ID(), why)
	held.unlock()
	l.stage.forget(l.Generation)
}
