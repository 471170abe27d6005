package supervisor

import (
	"context"

	"github.com/catena-dev/catena/host/internal/lifecycle"
	"github.com/catena-dev/catena/host/internal/process"
)

// turnToRestart takes the stage's turn. A planned change that has it can take long, or
// hang, so that a stage which was up is restarted beside it: whichever is ready first
// serves, and the change takes over from whoever serves then.
func (s *Supervisor) turnToRestart(st *stage, dead *generation) (done func(), err error) {
	if st.changing.try() {
		return st.changing.done, nil
	}
	if dead != nil {
		return func() {}, nil
	}
	return st.changing.done, st.changing.wait(s.background)
}

// replacement brings up a generation on the socket of the dead one, or on a new one if
// there is none.
func (s *Supervisor) replacement(st *stage, dead *generation) (*generation, error) {
	if dead != nil {
		g, err := s.prepare(s.background, st, st.present(), dead.listener, false)
		if err == nil {
			g.inherit(dead.reported())
		}
		return g, err
	}
	spec := st.present()
	l, err := s.listen(spec)
	if err != nil {
		return nil, err
	}
	g, err := s.prepare(s.background, st, spec, l, false)
	if err != nil {
		_ = s.close(l)
		return nil, err
	}
	g.inherit(report{claims: assumed(spec.LastClaims)})
	return g, nil
}

// prepare brings up a generation to the point at which it could serve.
func (s *Supervisor) prepare(ctx context.Context, st *stage, spec Spec, l *process.Listener, standby bool) (*generation, error) {
	g, err := s.launch(ctx, st, spec, l)
	if err != nil {
		return nil, err
	}
	g.standby = standby
	if err = g.validateConfig(ctx); err == nil {
		_, err = g.Configure(ctx, st.behind(s.chain()))
	}
	if err == nil {
		err = g.PrepareRun(ctx)
	}
	if err != nil {
		s.discard(g)
		return nil, err
	}
	s.follow(g)
	return g, nil
}

// withdraw ends a generation that a planned change has overtaken. What it has taken from
// the backlog of its socket finishes.
func (s *Supervisor) withdraw(g *generation) {
	g.retired.Store(true)
	ctx, cancel := context.WithTimeout(s.background, g.spec.DrainTimeout)
	defer cancel()
	g.drain(ctx, 0)
	if s.opts.AwaitEmpty != nil {
		_ = s.opts.AwaitEmpty(ctx, g.listener.Path())
	}
	s.discard(g)
}

// discard ends a generation that did not come up.
func (s *Supervisor) discard(g *generation) {
	g.retired.Store(true)
	s.kill(g)
	s.forget(g)
	_ = g.machine.To(lifecycle.Failed, "did not come up")
	if current := g.stage.generation(); !g.standby && (current == nil || current.listener != g.listener) {
		_ = s.close(g.listener)
	}
}
