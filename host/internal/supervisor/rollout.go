package supervisor

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/catena-dev/catena/host/internal/generation"
	"github.com/catena-dev/catena/host/internal/lifecycle"
	"github.com/catena-dev/catena/host/internal/panics"
	"github.com/catena-dev/catena/host/internal/process"
)

// rollout brings up generations of one or more stages: it launches them all at the same
// time and has them check their configurations, then configures and prepares them from the
// tail of the chain to its head, and waits until all are ready. A start, a restart, a
// standby and a planned change are all rollouts.
type rollout struct {
	supervisor *Supervisor
	// members are the whole chain as it will be, from head to tail.
	members []*member
	// ready reports whether the generations run their post-start hooks and are waited for until
	// they are ready; otherwise the rollout ends when they are prepared.
	ready bool
	// launched, if not nil, is called when all are launched, before the first is configured.
	launched func(ctx context.Context) error
	// outdated, if not nil, is asked for each stage of which no generation is brought up,
	// with the reports of those downstream. It may add one.
	outdated func(ctx context.Context, m *member, downstream []lifecycle.Report[generation.Report]) error
	// prepared, if not nil, is called as soon as a generation is prepared.
	prepared func(m *member) error
	// admit, if not nil, is asked for each generation when all are prepared, before their post-start hooks.
	admit func(ctx context.Context, m *member) error
	// tolerate, if not nil, gets the errors of a member, and returns nil if the rollout is to
	// go on without it.
	tolerate func(m *member, err error) error
}

// member is a stage in a rollout.
type member struct {
	rollout *rollout
	stage   *stage
	spec    Spec
	// launching reports whether a generation is brought up. Its data socket is listener if that
	// is not nil, or one of its own.
	launching bool
	listener  *process.Listener
	standby   bool
	// generation is there from the handshake on.
	generation *generation.Generation
}

// rolloutOf returns a rollout in which nothing is brought up yet, of the chain as it is
// now.
func (s *Supervisor) rolloutOf() *rollout {
	held := s.lock()
	defer held.unlock()
	r := &rollout{supervisor: s}
	for _, st := range held.chain {
		r.members = append(r.members, &member{rollout: r, stage: st, spec: st.guarded.spec})
	}
	return r
}

// member returns that of a stage, or nil.
func (r *rollout) member(st *stage) *member {
	for _, m := range r.members {
		if m.stage == st {
			return m
		}
	}
	return nil
}

// run brings the generations up. After an error, the caller discards those that are there.
func (r *rollout) run(ctx context.Context) error {
	if err := r.all(func(m *member) error { return m.launch(ctx) }); err != nil {
		return err
	}
	if r.launched != nil {
		if err := r.launched(ctx); err != nil {
			return err
		}
	}
	members := make([]lifecycle.Member[generation.Report], len(r.members))
	for i, m := range r.members {
		members[i] = m
	}
	if err := lifecycle.Build(ctx, members); err != nil || !r.ready {
		return err
	}
	if r.admit != nil {
		if err := r.all(func(m *member) error { return r.admit(ctx, m) }); err != nil {
			return err
		}
	}
	return r.all(func(m *member) error { return m.awaitReady(ctx) })
}

// all does a step for all generations at the same time.
func (r *rollout) all(step func(*member) error) error {
	errs := make([]error, len(r.members))
	var wg sync.WaitGroup
	for i, m := range r.members {
		if m.launching {
			wg.Go(func() { errs[i] = panics.Call(func() error { return step(m) }) })
		}
	}
	wg.Wait()
	for i, m := range r.members {
		errs[i] = m.check(errs[i])
	}
	return errors.Join(errs...)
}

// discard ends what was brought up.
func (r *rollout) discard() {
	var wg sync.WaitGroup
	for _, m := range r.members {
		wg.Go(panics.Contain(m.discard, r.supervisor.panicked))
	}
	wg.Wait()
}

// check returns the error of a step unless it is tolerated: the rollout goes on without the
// generation then.
func (m *member) check(err error) error {
	if err == nil || m.rollout.tolerate == nil {
		return err
	}
	if err := m.rollout.tolerate(m, err); err != nil {
		return err
	}
	m.discard()
	m.launching = false
	return nil
}

func (m *member) discard() {
	if m.generation != nil {
		m.stage.live(m.generation).discard()
		m.generation = nil
	}
}

// launch starts the process and has it check its configuration.
func (m *member) launch(ctx context.Context) error {
	l, err := m.listener, error(nil)
	if l == nil {
		if l, err = generation.NewListener(m.stage.opts.RuntimeDir, m.spec.Process); err != nil {
			return err
		}
	}
	if m.generation, err = m.rollout.supervisor.launch(ctx, m, l); err != nil {
		if m.listener == nil {
			err = errors.Join(err, l.Close())
		}
		return err
	}
	return m.generation.ValidateConfig(ctx)
}

// launch starts a process and lets it call the host.
func (s *Supervisor) launch(ctx context.Context, m *member, l *process.Listener) (*generation.Generation, error) {
	st := m.stage
	held := s.lock()
	reattach := st.guarded.machine.Current() != ""
	held.unlock()
	g, err := generation.Launch(ctx, &st.opts, generation.Config{
		Spec: m.spec.Process, StartTimeout: m.spec.StartTimeout, Listener: l, Standby: m.standby, Reattach: reattach,
		Optional: !m.spec.Required,
		Approve:  s.approval(m.spec),
	})
	if err != nil {
		return nil, err
	}
	held = s.lock()
	if held.stopping {
		err = errStopping
	} else if err = st.guarded.machine.Launch(g.ID()); err == nil {
		st.guarded.generations[g.ID()] = g
		s.callers.Add(g)
		held.stages[st] = true
	}
	held.unlock()
	if err != nil {
		g.Kill()
		return nil, err
	}
	s.goFor(g, func() { st.live(g).awaitEnd() })
	return g, nil
}

// approval returns what approves the file of a stage before it is executed, nil if all are
// approved. The digest of the Spec has been approved when the Spec was made, and stays so: a
// generation can be restarted, or rolled back to, after the lock has gone on to another file.
func (s *Supervisor) approval(spec Spec) func(process.Contents) error {
	if !spec.Locked && (!spec.OwnProgram || process.IsOwn(spec.Binary)) {
		return nil
	}
	return func(c process.Contents) error {
		switch {
		case c.SHA256 == spec.Digest:
			return nil
		case s.opts.Approve == nil:
			return fmt.Errorf("%s: its sha256 is %s, not %s", spec.Binary, c.SHA256, spec.Digest)
		}
		return s.opts.Approve(spec.Name, spec.Binary, c)
	}
}

// Name implements lifecycle.Member.
func (m *member) Name() string { return m.spec.Name }

// Configure implements lifecycle.Member.
func (m *member) Configure(ctx context.Context, downstream []lifecycle.Report[generation.Report]) (generation.Report, error) {
	if !m.launching && m.rollout.outdated != nil {
		if err := m.check(m.rollout.outdated(ctx, m, downstream)); err != nil {
			return generation.Report{}, err
		}
	}
	if m.generation != nil {
		err := m.advance(lifecycle.Configuring)
		if err == nil {
			_, err = m.generation.Configure(ctx, downstream)
		}
		if err := m.check(err); err != nil {
			return generation.Report{}, err
		}
	}
	return m.report(), nil
}

// PrepareRun implements lifecycle.Member.
func (m *member) PrepareRun(ctx context.Context) error {
	if m.generation == nil {
		return nil
	}
	s, g := m.rollout.supervisor, m.generation
	err := m.advance(lifecycle.Preparing)
	if err == nil {
		err = g.PrepareRun(ctx)
	}
	if err == nil {
		s.goFor(g, func() { m.stage.live(g).follow() })
		s.signals.follow(g)
		s.goFor(g, func() { m.stage.live(g).tell() })
		s.goFor(g, func() { m.stage.live(g).watchdog() })
		if m.rollout.prepared != nil {
			err = m.rollout.prepared(m)
		}
	}
	return m.check(err)
}

func (m *member) awaitReady(ctx context.Context) error {
	s, g := m.rollout.supervisor, m.generation
	failed := make(chan error, len(g.PostStartHooks()))
	s.goFor(g, func() {
		m.stage.live(g).runHooks(func(err error) {
			if err != nil {
				failed <- err
			}
		})
	})
	return g.AwaitReady(ctx, failed)
}

func (m *member) advance(next lifecycle.State) error {
	s := m.rollout.supervisor
	held := s.lock()
	defer held.unlock()
	return m.stage.guarded.machine.Advance(m.generation.ID(), next)
}

// report is the latest of the stage as it will be.
func (m *member) report() generation.Report {
	if m.generation != nil {
		return m.generation.Report()
	}
	return m.stage.reportOf()
}
