package supervisor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/catena-dev/catena/host/internal/canary"
	"github.com/catena-dev/catena/host/internal/generation"
	"github.com/catena-dev/catena/host/internal/lifecycle"
)

var errAttached = errors.New("it is a process that was started by hand: end it and start another, the host attaches to that")

// request is a change of the chain that is asked for.
type request struct {
	// specs are the chain that is wanted, from head to tail.
	specs []Spec
	// swap is the stage whose swap was asked for, empty if none was, and also are others
	// that are swapped though nothing of them has changed.
	swap string
	also []string
	// reason says why the stage is swapped, if the operator does not know.
	reason string
	// rollback takes the place of those in the specs if it is not nil.
	rollback *Rollback
	// unasked is in force for stages whose spec has none.
	unasked Rollback
	// canary is how the requests move, nil if all do at once.
	canary *canary.Plan
	// allow names what may be in the way of another release.
	allow []string
	// along is that of SwapOptions.
	along Along
}

// change is a planned change of the chain under way: a rollout of stages beside those that
// serve, after which the requests move.
type change struct {
	request
	*rollout
	plan plan
	// removed are the stages that leave the chain.
	removed []*stage
	held    []*semaphore.Weighted
	began   time.Time
	ready   time.Duration
	// added are the stages that were not in the chain before.
	added map[*stage]bool
	// staged are the generations that are prepared.
	staged map[string]*generation.Generation
	// before and moved are set by move.
	before []*stage
	moved  []moved
}

// moved is a stage whose requests go to another generation, or, if it has been added or
// removed, from none or to none.
type moved struct {
	stage     *stage
	old, next *generation.Generation
	// process is what the stage was made from before.
	process Process
}

// change does what is asked for. The caller has begun an operation that has the chain. An error leaves the chain as
// it was.
func (s *changes) change(ctx context.Context, r request) (*change, error) {
	p, err := s.plan(r)
	if err != nil {
		return nil, err
	}
	if p.empty() {
		s.adopt(r.specs)
		return &change{request: r, plan: p}, nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.of.background, func() { cancel(errStopping) })()
	c, err := s.newChange(ctx, p, r)
	defer c.release()
	if err != nil {
		c.abandon()
		s.swapRefused(r.swap, err)
		return nil, err
	}
	if err := c.bringUp(ctx); err != nil {
		c.giveUp(err)
		return nil, err
	}
	p2, err := c.move()
	if err != nil {
		c.giveUp(err)
		return nil, err
	}
	c.settle(p2)
	return c, nil
}

// plan is what has to be done for a request. Unless that is nothing, there is no
// probation any more that could change the chain which is planned from.
func (s *changes) plan(r request) (plan, error) {
	on := s.of.onProbation()
	p, err := r.plan(s.present())
	if err != nil || p.empty() || on == nil {
		return p, err
	}
	if on.canary != nil {
		return p, on.busy()
	}
	s.endProbation(anotherChange)
	return r.plan(s.present())
}

func (s *changes) stage(name string) (*stage, error) {
	held := s.of.lock()
	defer held.unlock()
	return held.stage(name)
}

// present is the chain as a plan sees it.
func (s *changes) present() []presentStage {
	held := s.of.lock()
	defer held.unlock()
	var all []presentStage
	for _, st := range held.chain {
		now := presentStage{spec: st.guarded.spec}
		if g := st.guarded.current(); g != nil {
			now.up, now.delegates = g.Spec().Attach == "", g.Delegates()
		}
		all = append(all, now)
	}
	return all
}

// adopt takes over from specs what needs no other process, such as a timeout.
func (s *changes) adopt(specs []Spec) {
	var renew []*stage
	held := s.of.lock()
	for _, spec := range specs {
		if st, err := held.stage(spec.Name); err == nil && st.guarded.adopt(spec) {
			renew = append(renew, st)
		}
	}
	held.publish()
	held.unlock()
	for _, st := range renew {
		st.renewStandby(0)
	}
}

// newChange makes the stages that are new, and keeps all that are concerned from being
// brought up by others, until release. With an error, the change has the stages that were made and held.
func (s *changes) newChange(ctx context.Context, p plan, r request) (*change, error) {
	c := &change{request: r, plan: p, began: time.Now(), added: map[*stage]bool{}, staged: map[string]*generation.Generation{}}
	c.rollout = &rollout{
		supervisor: s.of, ready: true, launched: c.takeAlong, outdated: c.cascade, prepared: c.makeReachable,
		admit: c.admit, tolerate: c.tolerate,
	}
	for _, spec := range r.specs {
		m := &member{rollout: c.rollout, spec: spec, launching: p.concerns(spec.Name)}
		err := c.find(m, slices.Contains(p.added, spec.Name))
		if err == nil && m.launching {
			err = c.hold(ctx, m.stage)
		}
		if err != nil {
			return c, err
		}
		c.members = append(c.members, m)
	}
	for _, name := range p.removed {
		st, err := s.stage(name)
		if err == nil {
			err = c.hold(ctx, st)
		}
		if err != nil {
			return c, err
		}
		c.removed = append(c.removed, st)
	}
	return c, nil
}

// find sets the stage of a member.
func (c *change) find(m *member, added bool) (err error) {
	s := c.supervisor
	if added {
		if m.stage, err = s.newStage(m.spec); err == nil {
			c.added[m.stage] = true
		}
		return err
	}
	held := s.lock()
	defer held.unlock()
	if m.stage, err = held.stage(m.spec.Name); err != nil {
		return err
	}
	if m.launching && m.attached(held) {
		return errAttached
	}
	return nil
}

// attached reports whether the stage is a process that was started by hand, and stays one:
// there is no other to swap it for.
func (m *member) attached(*locked) bool {
	return m.spec.Attach != "" && m.stage.guarded.spec.Attach != ""
}

// hold keeps a stage from being restarted. A swap does not wait for a restart, which
// may be one of many; a change of the chain does.
func (c *change) hold(ctx context.Context, st *stage) error {
	if st.name == c.swap {
		if !st.launching.TryAcquire(1) {
			return fmt.Errorf("stage %q: a restart is under way: %w", st.name, ErrBusy)
		}
	} else if err := acquire(ctx, st.launching); err != nil {
		return fmt.Errorf("stage %q: a restart is under way: %w", st.name, err)
	}
	c.held = append(c.held, st.launching)
	return nil
}

func (c *change) release() {
	for _, sem := range c.held {
		sem.Release(1)
	}
	c.held = nil
}

// bringUp takes the new generations to the point at which requests can move to them.
func (c *change) bringUp(ctx context.Context) error {
	for _, m := range c.members {
		if m.launching && !c.added[m.stage] {
			c.begun(m, c.reasonOf(m.stage))
		}
	}
	if err := c.run(ctx); err != nil {
		return err
	}
	c.ready = time.Since(c.began)
	return c.conflict()
}

// reasonOf returns why a stage is swapped, if that is not plain.
func (c *change) reasonOf(st *stage) string {
	if st.name == c.swap {
		return c.reason
	}
	return ""
}

// begun reports that a swap of a stage has begun.
func (c *change) begun(m *member, why string) {
	s := c.supervisor
	held := s.lock()
	held.hurry(m.stage)
	held.events.emit(Event{Kind: SwapBegun, Stage: m.stage.name, From: id(m.stage.guarded.current()), Reason: why})
	held.unlock()
}

// cascade makes a stage part of the change that was to be left alone, if the stages
// downstream of it list other paths, or are of another release of Kubernetes, than its process was told of.
func (c *change) cascade(ctx context.Context, m *member, downstream []lifecycle.Report[generation.Report]) error {
	s := c.supervisor
	held := s.lock()
	g := m.stage.guarded.current()
	outdated := g != nil && !m.attached(held) && !g.Knows(downstream)
	held.unlock()
	if !outdated {
		return nil
	}
	return c.include(ctx, m, "stages downstream of it list other paths, or are of another release")
}

// takeAlong makes stages part of a swap that go to another binary with the one that is swapped.
func (c *change) takeAlong(ctx context.Context) error {
	if c.along == nil {
		return nil
	}
	next := c.members[slices.IndexFunc(c.members, func(m *member) bool { return m.spec.Name == c.swap })]
	for _, m := range c.members {
		if m.launching || m.spec.Attach != "" {
			continue
		}
		spec := m.spec
		spec.Process = spec.Process.Clone()
		why, err := c.along(next.spec, next.generation.Description(), &spec)
		if err == nil && why != "" {
			m.spec = spec
			err = c.include(ctx, m, why)
		}
		if err != nil {
			return fmt.Errorf("stage %q, which goes along: %w", m.spec.Name, err)
		}
	}
	return nil
}

// include makes a stage part of the change that was to be left alone.
func (c *change) include(ctx context.Context, m *member, why string) error {
	m.stage.log.Info("stage is swapped too", "reason", why)
	if err := c.hold(ctx, m.stage); err != nil {
		return err
	}
	m.launching = true
	c.plan.swapped = append(c.plan.swapped, m.spec.Name)
	c.begun(m, why)
	return m.launch(ctx)
}

// makeReachable lets all generations of the change call one that is prepared: as a delegate,
// and what it claims and no stage of the chain serves through the API of the server.
func (c *change) makeReachable(prepared *member) error {
	staged := maps.Clone(c.staged)
	staged[prepared.spec.Name] = prepared.generation
	c.staged = staged
	for _, m := range c.members {
		if m.generation != nil {
			m.generation.Stage(staged)
		}
	}
	return nil
}

// tolerate takes the error of a stage that is not required and has never been up: it
// goes on to be tried in its new place.
func (c *change) tolerate(m *member, err error) error {
	s := c.supervisor
	held := s.lock()
	been := m.stage.guarded.current() != nil
	held.unlock()
	if c.added[m.stage] || m.spec.Required || been || m.spec.Name == c.swap {
		return err
	}
	m.stage.absent(err)
	return nil
}

// abandon drops the stages that were to be added.
func (c *change) abandon() {
	for st := range c.added {
		st.gone()
	}
}

// giveUp ends what was brought up.
func (c *change) giveUp(err error) {
	s := c.supervisor
	held := s.lock()
	for _, m := range c.members {
		if m.launching {
			held.swapEnded(m.stage, SwapFailed, id(m.stage.guarded.current()), id(m.generation), err.Error(), 0)
		}
	}
	held.unlock()
	c.discard()
	c.abandon()
}

// move makes the requests go the new way at one point in time, and returns the probation
// that this is on, nil if it is final. An error leaves everything as it was.
func (c *change) move() (*probation, error) {
	s := c.supervisor
	held := s.lock()
	defer held.unlock()
	if held.stopping {
		return nil, errStopping
	}
	for _, m := range c.members {
		if m.generation == nil {
			continue
		}
		if err := m.generation.Err(); err != nil {
			return nil, err
		}
		if err := m.stage.guarded.machine.CanServe(m.generation.ID(), m.stage.guarded.machine.Current()); err != nil {
			return nil, err
		}
		if c.canary != nil && m.stage.guarded.machine.State(m.stage.guarded.machine.Current()) != lifecycle.Serving {
			return nil, fmt.Errorf("stage %q has no process that serves, beside which a canary could", m.stage.name)
		}
	}
	c.before = held.chain
	chain := make([]*stage, len(c.members))
	for i, m := range c.members {
		chain[i] = m.stage
		switch {
		case m.generation != nil:
		case c.plan.concerns(m.spec.Name): // tolerated: it is tried again as it is wanted now
			m.stage.guarded.spec = m.spec
			continue
		default:
			if m.stage.guarded.adopt(m.spec) {
				s.goFor(nil, func() { m.stage.renewStandby(0) })
			}
			continue
		}
		of := &m.stage.guarded
		c.moved = append(c.moved, moved{stage: m.stage, old: of.current(), next: m.generation, process: of.spec.Process})
		if err := held.serve(m.stage, m.generation, m.stage.guarded.machine.Current()); err != nil {
			return nil, err // cannot be: it was asked before
		}
		m.stage.guarded.otherRelease = ""
		m.stage.guarded.failures = 0 // of other processes: a start of this one need not wait for them
		m.stage.guarded.spec = m.spec
		m.generation.Stage(nil)
	}
	for _, st := range c.removed {
		c.moved = append(c.moved, moved{stage: st, old: st.guarded.current(), process: st.guarded.spec.Process})
		st.guarded.machine.Remove()
		st.guarded.endStandby()
	}
	held.chain = chain
	p := c.probation(held)
	held.publish()
	return p, nil
}

// settle reports what has moved, and ends what is not needed any more, at once or when
// the probation is over.
func (c *change) settle(p *probation) {
	s := c.supervisor
	for _, m := range c.moved {
		switch {
		case m.next == nil:
			m.stage.log.Info("stage removed")
			s.events.announce(Event{Kind: StageRemoved, Stage: m.stage.name, From: id(m.old)})
		case p != nil && p.canary != nil:
			p.announceShare(m)
		case c.added[m.stage]:
			m.stage.log.Info("stage added", "generation", m.next.ID(), "version", m.next.Version(), "ready",
				c.ready.Round(time.Millisecond))
			s.events.announce(Event{Kind: StageAdded, Stage: m.stage.name, To: m.next.ID(), Took: c.ready})
		default:
			m.stage.log.Info("stage swapped", "from", id(m.old), "to", m.next.ID(), "version", m.next.Version(),
				"ready", c.ready.Round(time.Millisecond))
			held := s.lock()
			held.swapEnded(m.stage, SwapDone, id(m.old), m.next.ID(), c.reasonOf(m.stage), c.ready)
			held.unlock()
		}
		if p == nil {
			m.stage.renewStandby(0)
		}
	}
	if c.plan.reordered {
		s.events.announce(Event{Kind: ChainReordered})
	}
	if p != nil {
		p.begin()
	} else {
		s.retireOld(c.moved)
	}
	s.reconcile()
}

// retireOld ends in the background the generations that requests have moved away from.
func (s *changes) retireOld(all []moved) {
	for _, m := range all {
		if m.old != nil {
			s.of.goFor(m.old, func() { m.stage.live(m.old).retire(replaced) })
		}
	}
}

// swapRefused takes note of a swap that was asked for and has not begun, because of what
// it was to swap to. One that could be had a moment later does not count.
func (s *changes) swapRefused(name string, err error) {
	held := s.of.lock()
	defer held.unlock()
	if st, unknown := held.stage(name); unknown == nil && !errors.Is(err, ErrBusy) {
		held.swapEnded(st, SwapFailed, id(st.guarded.current()), "", err.Error(), 0)
	}
}
