package supervisor

import (
	"context"
	"time"
)

// Start brings up a generation of each stage, and tells outlet of them. When all are launched, it waits for store,
// which returns when they can use that, or an error that ends the start. One that is prepared is published, so that
// those upstream can call it, and reported to up. An error names the stage; what was started keeps running until Stop.
// A stage that is not required and does not come up is no error: it is tried again in the background.
func (s *Supervisor) Start(
	ctx context.Context, outlet Outlet, store func() error, up func(stage, version string, pid int, took time.Duration),
) error {
	began := time.Now()
	s.outlet, s.events.report = outlet, outlet.Events
	held := s.lock()
	held.publishTo = outlet.Publish
	held.unlock()
	defer s.events.flush()
	s.goFor(nil, s.watchLimits)
	r := s.rolloutOf()
	r.launched = func(context.Context) error { return store() }
	for _, m := range r.members {
		m.launching = true
	}
	r.tolerate = func(m *member, err error) error {
		if ctx.Err() != nil || m.spec.Required {
			return err
		}
		m.stage.absent(err)
		return nil
	}
	r.prepared = func(m *member) error {
		held := s.lock()
		err := held.serve(m.stage, m.generation, "")
		if err == nil {
			held.publish()
		}
		held.unlock()
		if err == nil {
			up(m.stage.name, m.generation.Version(), m.generation.PID(), time.Since(began))
		}
		return err
	}
	if err := r.run(ctx); err != nil {
		return err
	}
	held = s.lock()
	held.started = true
	held.publish()
	held.unlock()
	for _, m := range r.members {
		if m.generation == nil {
			s.goFor(nil, func() { m.stage.restart(nil, 0) })
		} else {
			m.stage.renewStandby(0)
		}
	}
	return nil
}

// RunPostStartHooks starts the post-start hooks of all stages, all at once, and
// returns. The contexts of the hooks end with Stop. Failed is called with the
// error of a hook that failed, which names the hook and its stage, unless the stage is
// not required: that is restarted then.
func (s *Supervisor) RunPostStartHooks(failed func(error)) {
	held := s.lock()
	held.hooksDue = true
	held.unlock()
	for _, st := range s.order() {
		held = s.lock()
		g, required := st.guarded.current(), st.guarded.spec.Required
		held.unlock()
		switch {
		case g == nil:
		case required:
			s.goFor(g, func() {
				st.live(g).runHooks(func(err error) {
					if err != nil && !s.isStopping() {
						failed(err)
					}
				})
			})
		default:
			s.goFor(g, func() { st.live(g).runHooksOrKill() })
		}
	}
	s.reconcile()
}
