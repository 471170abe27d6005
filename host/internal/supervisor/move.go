package supervisor

import (
	"errors"
	"slices"
	"time"
)

// moved is a stage whose requests go to another generation, or, if it has been added or
// removed, from none or to none.
type moved struct {
	stage     *stage
	old, next *generation
	// spec is what the stage was made from before.
	spec Spec
}

// move makes the requests go the new way at one point in time. An error leaves
// everything as it was.
func (c *change) move() error {
	s := c.supervisor
	s.publishing.Lock()
	defer s.publishing.Unlock()
	if s.isStopping() {
		return errStopping
	}
	var generations []*generation
	c.before = s.chain()
	chain := make([]*stage, len(c.links))
	for i, l := range c.links {
		chain[i] = l.stage
		if l.generation != nil {
			generations = append(generations, l.generation)
			c.moved = append(c.moved, moved{stage: l.stage, old: l.stage.generation(), next: l.generation, spec: l.stage.present()})
		}
	}
	for _, st := range c.removed {
		c.moved = append(c.moved, moved{stage: st, old: st.generation(), spec: st.present()})
	}
	if err := s.take(generations...); err != nil {
		c.moved = nil
		return err
	}
	for _, l := range c.links {
		if l.changing {
			l.stage.setSpec(l.spec)
		} else if l.stage.adopt(l.spec) {
			defer s.renewStandby(l.stage)
		}
		if l.generation != nil {
			l.generation.staged.Store(nil)
		}
	}
	for _, st := range c.removed {
		st.setGone(true)
	}
	s.stages.Store(&chain)
	s.publishLocked()
	return nil
}

// settle tells of what has moved, and ends what is not needed any more, at once or when
// the probation is over.
func (c *change) settle() {
	s := c.supervisor
	p := c.probation()
	for _, m := range c.moved {
		switch {
		case m.next == nil:
			m.stage.log.Info("stage removed")
			m.stage.emit(Event{Kind: StageRemoved, From: m.old.ID()})
		case !slices.Contains(c.before, m.stage):
			m.stage.log.Info("stage added", "generation", m.next.id, "version", m.next.version(), "ready", c.ready.Round(time.Millisecond))
			m.stage.emit(Event{Kind: StageAdded, To: m.next.id, Took: c.ready})
		default:
			m.stage.log.Info("stage swapped", "from", m.old.ID(), "to", m.next.id, "version", m.next.version(), "ready", c.ready.Round(time.Millisecond))
			m.stage.swapEnded(SwapDone, m.old.ID(), m.next.id, "", c.ready)
		}
		if p == nil {
			s.renewStandby(m.stage)
		}
	}
	if c.plan.reordered && s.opts.Events != nil {
		s.opts.Events(Event{Kind: ChainReordered, At: time.Now()})
	}
	if p != nil {
		p.begin()
	} else {
		s.retireAll(c.moved)
	}
	s.reconcile()
}

// retireAll ends in the background the generations that requests have moved away from.
func (s *Supervisor) retireAll(all []moved) {
	for _, m := range all {
		if m.old != nil {
			s.running.Go(func() { s.retire(m.old) })
		}
	}
}

// applied is what the change has come to.
func (c *change) applied() Applied {
	a := Applied{Added: c.plan.added, Removed: c.plan.removed, Reordered: c.plan.reordered}
	for _, m := range c.moved {
		if m.next != nil && !slices.Contains(c.plan.added, m.stage.name) {
			a.Swapped = append(a.Swapped, m.stage.name)
		}
	}
	return a
}

// SwapRefused takes note of a swap that was asked for and has not begun, because of what
// it was to swap to. One that could be had a moment later does not count.
func (s *Supervisor) SwapRefused(name string, err error) {
	if st, unknown := s.stage(name); unknown == nil && !errors.Is(err, ErrBusy) {
		st.swapEnded(SwapFailed, st.generation().ID(), "", err.Error(), 0)
	}
}

// swapEnded keeps how a swap has ended, and tells of it.
func (s *stage) swapEnded(kind EventKind, from, to, reason string, took time.Duration) {
	result := map[EventKind]string{
		SwapDone: "done", SwapFailed: "failed", SwapRolledBack: "rolled back", SwapAccepted: "done",
	}[kind]
	now := time.Now()
	s.mu.Lock()
	s.lastSwap = &SwapResult{From: from, To: to, At: now, Result: result, Reason: reason}
	s.mu.Unlock()
	s.emit(Event{Kind: kind, From: from, To: to, Reason: reason, At: now, Took: took})
}
