package supervisor

import (
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/catena-dev/catena/host/internal/canary"
	"github.com/catena-dev/catena/host/internal/generation"
	"github.com/catena-dev/catena/host/internal/lifecycle"
)

const (
	// healthPoll is how often a generation on probation is asked for its health, and
	// healthStrikes how many times in a row it may be bad.
	healthPoll    = 500 * time.Millisecond
	healthStrikes = 2
)

const anotherChange = "another change of the chain has begun"

// probation is the time after a change in which it can be taken back: the generations
// that were before are kept as they were, without requests or, in a canary, with a part of them.
type probation struct {
	supervisor *Supervisor
	before     []*stage
	moved      []moved
	length     time.Duration
	// unasked reports whether it gives way to any operation.
	unasked bool
	until   time.Time // set under the lock
	// canary is how the requests move; nil if all have.
	canary *canaryRun
	// watched are the new generations by their sockets.
	watched map[string]*watched
	// over is closed when the probation has ended.
	over chan struct{}
}

// watched is a generation on probation.
type watched struct {
	generation       *generation.Generation
	limit            Rollback
	requests, failed atomic.Int64
}

// probation begins that of a change which has just moved, and returns it; nil if none is
// wanted, or if there would be nothing to go back to.
func (c *change) probation(held *locked) *probation {
	s := c.supervisor
	p := &probation{supervisor: s, before: c.before, moved: c.moved, unasked: true, watched: map[string]*watched{},
		over: make(chan struct{})}
	for _, m := range c.moved {
		if m.old != nil && m.stage.guarded.machine.State(m.old.ID()) != lifecycle.Serving {
			return nil
		}
		if m.next == nil {
			continue
		}
		limit, unasked := m.stage.guarded.spec.Rollback, false
		switch {
		case c.rollback != nil:
			limit = *c.rollback
		case !limit.wanted():
			limit, unasked = c.unasked, true
		}
		if c.canary != nil {
			limit = canaryLimits(limit, c.canary)
		} else if !limit.wanted() {
			continue
		}
		p.unasked = p.unasked && unasked
		p.length = max(p.length, limit.Probation)
		p.watched[m.next.Listener().Path()] = &watched{generation: m.next, limit: limit}
	}
	if len(p.watched) == 0 {
		return nil
	}
	if c.canary != nil {
		p.canary = newCanaryRun(held, c, p)
		p.length = p.canary.plan.Length()
	}
	p.until = time.Now().Add(p.length)
	for _, m := range p.moved {
		m.stage.guarded.machine.Probe(id(m.old))
	}
	held.probation.Store(p)
	return p
}

// begin lets the time run.
func (p *probation) begin() {
	s := p.supervisor
	held := s.lock()
	if held.probation.Load() == p {
		for _, m := range p.moved {
			if m.stage.guarded.lastSwap != nil && m.next != nil {
				m.stage.guarded.lastSwap.Result = p.result()
			}
		}
	}
	held.unlock()
	s.goFor(nil, p.run)
}

// run ends the probation when its time is over, or when checks fail.
func (p *probation) run() {
	s, strikes := p.supervisor, 0
	for {
		select {
		case <-p.over:
			return
		case <-s.background.Done():
			return
		case <-time.After(min(healthPoll, max(0, p.left()))):
		}
		if p.left() <= 0 {
			p.accept("")
			return
		}
		if p.canary != nil {
			if reason := p.canary.exceeded(); reason != "" {
				p.rollBack(hclog.Error, reason)
				return
			}
			p.advance(time.Now())
		}
		err := p.unhealthy()
		if strikes++; err == nil {
			strikes = 0
		}
		if strikes >= healthStrikes {
			p.rollBack(hclog.Error, err.Error())
			return
		}
	}
}

// left is how long the probation lasts yet. A canary has its last step first, however long those before it take.
func (p *probation) left() time.Duration {
	held := p.supervisor.lock()
	defer held.unlock()
	if p.canary != nil && !p.canary.last(held) {
		return max(healthPoll, time.Until(p.until))
	}
	return time.Until(p.until)
}

// unhealthy returns the first check that fails of the generations whose health counts.
func (p *probation) unhealthy() error {
	for _, w := range p.watched {
		if !w.limit.Health {
			continue
		}
		if err := w.generation.Healthy(p.supervisor.background); err != nil {
			return err
		}
	}
	return nil
}

// Observe counts one request that the process behind a data socket has had, for the
// rate of errors after a swap. It costs next to nothing if there has been none. Failed
// is a response with a status of 500 or more, or no response.
func (s *changes) Observe(socket string, failed bool) {
	p := s.of.onProbation()
	if p == nil || p.canary != nil {
		return
	}
	if w := p.watched[socket]; w != nil {
		if reason := w.count(failed); reason != "" && s.of.begin() {
			s.of.goFor(nil, func() {
				defer s.of.running.Done()
				p.rollBack(hclog.Error, reason)
			})
		}
	}
}

// count counts a request, and returns why the generation is not to stay, if so.
func (w *watched) count(failed bool) string {
	n := w.requests.Add(1)
	if !failed {
		return ""
	}
	bad := w.failed.Add(1)
	if rate := float64(bad) / float64(n); w.limit.ErrorRate > 0 && n >= canary.LeastRequests && rate > w.limit.ErrorRate {
		return fmt.Sprintf("%d of %d requests to stage %q have failed (%.1f%%, the limit is %.1f%%)",
			bad, n, w.generation.Name(), 100*rate, 100*w.limit.ErrorRate)
	}
	return ""
}

// Conclude ends the probation or the canary of a swap of a stage before its time: the new generation stays, or the old one
// gets its place back.
func (s *changes) Conclude(name string, keep bool) error {
	if _, err := s.stage(name); err != nil {
		return err
	}
	if !s.of.begin() {
		return errStopping
	}
	defer s.of.running.Done()
	p := s.of.onProbation()
	if p == nil || !p.concerns(name) {
		return fmt.Errorf("stage %q: no swap is on probation, and no canary is under way", name)
	}
	defer s.of.events.flush()
	const asked = "it was asked for"
	if keep && !p.accept(asked) || !keep && !p.goBack(SwapReverted, hclog.Info, asked) {
		return fmt.Errorf("stage %q: it has ended already, see catena status", name)
	}
	return nil
}

// concerns reports whether the stage is part of the change.
func (p *probation) concerns(name string) bool {
	return slices.ContainsFunc(p.moved, func(m moved) bool { return m.stage.name == name })
}

// result is that of the swap so far.
func (p *probation) result() string {
	if p.canary != nil {
		return "canary"
	}
	return "on probation"
}

// busy is why an operation is refused beside it.
func (p *probation) busy() error {
	if p.canary != nil {
		return fmt.Errorf("a canary of stage %q is under way, which \"catena swap %[1]s --promote\" or \"--rollback\" ends: %w", p.canary.stage, ErrBusy)
	}
	return fmt.Errorf("a swap of stage %q is on probation, which \"catena swap %[1]s --promote\" or \"--rollback\" ends: %w", p.moved[0].stage.name, ErrBusy)
}

// endProbation makes the latest change final, if it is on probation.
func (s *changes) endProbation(reason string) {
	if p := s.of.onProbation(); p != nil {
		p.accept(reason)
	}
}

// rollBack takes the latest change back, if it is on probation. It reports whether it has.
func (s *changes) rollBack(reason string) bool {
	p := s.of.onProbation()
	return p != nil && p.rollBack(hclog.Error, reason)
}

// accept makes the change final, and reports whether it has. Reason says why that is before the time is over.
func (p *probation) accept(reason string) bool {
	s := p.supervisor
	held := s.lock()
	if held.probation.Load() != p {
		held.unlock()
		return false
	}
	p.finish(held)
	kind, took := SwapAccepted, p.length
	if p.canary != nil {
		kind, took = SwapDone, p.canary.ready
		held.publish()
	}
	for _, m := range p.moved {
		m.stage.guarded.machine.EndProbation()
		if m.next != nil {
			held.swapEnded(m.stage, kind, id(m.old), m.next.ID(), reason, took)
		}
	}
	held.unlock()
	for _, m := range p.moved {
		if m.next != nil {
			m.stage.log.Info("probation is over, the new generation stays", "generation", m.next.ID(), "reason", reason)
		}
		m.stage.renewStandby(0)
	}
	s.retireOld(p.moved)
	if p.canary != nil {
		s.reconcile()
	}
	return true
}

// finish ends the probation.
func (p *probation) finish(held *locked) {
	held.probation.Store(nil)
	close(p.over)
}

// rollBack goes back because the new generations do not do well.
func (p *probation) rollBack(level hclog.Level, reason string) bool {
	return p.goBack(SwapRolledBack, level, reason)
}

// goBack lets requests go the old way again, at one point in time, and ends the new
// generations. It reports whether it has. A process that is not there any more cannot get
// its place back: the new ones stay then. Level is that of the log.
func (p *probation) goBack(kind EventKind, level hclog.Level, reason string) bool {
	s := p.supervisor
	held := s.lock()
	if held.probation.Load() != p || held.stopping {
		held.unlock()
		return false
	}
	for _, m := range p.moved {
		if gone := m.old != nil && m.old.Err() != nil; gone || !m.stage.guarded.machine.CanRevert() {
			held.unlock()
			p.accept(fmt.Sprintf("the old generation of stage %q has ended, there is no way back", m.stage.name))
			return false
		}
	}
	p.finish(held)
	back := make([]moved, 0, len(p.moved))
	for _, m := range p.moved {
		m.stage.guarded.machine.Revert()
		if m.old != nil {
			m.stage.guarded.spec.Process = m.process
		}
		held.swapEnded(m.stage, kind, id(m.old), id(m.next), reason, 0)
		back = append(back, moved{stage: m.stage, old: m.next})
	}
	held.chain = p.before
	held.publish()
	held.unlock()
	for _, m := range p.moved {
		m.stage.log.Log(level, "swap rolled back", "from", id(m.next), "to", id(m.old), "reason", reason)
		held = s.lock()
		has := m.stage.guarded.machine.HasStandby()
		held.unlock()
		if !has {
			m.stage.renewStandby(0)
		}
	}
	s.retireOld(back)
	if p.canary != nil {
		s.reconcile()
	}
	return true
}
