package supervisor

import (
	"fmt"

	"github.com/catena-dev/catena/host/internal/lifecycle"
)

// ended is told of a process that has ended. It says whether that is dealt with. It is not
// if the process has got its place back in the same moment: another has to take it then.
func (p *probation) ended(g *generation) bool {
	for _, m := range p.moved {
		switch g {
		case m.next:
			return p.rollBack(fmt.Sprintf("the new generation of stage %q has ended", m.stage.name))
		case m.old:
			p.accept(fmt.Sprintf("the old generation of stage %q has ended, there is no way back", m.stage.name))
			if p.takenBack {
				return false
			}
			m.stage.log.Error("process of the old generation has ended", "generation", g.id, "error", g.proc.Err())
			_ = g.machine.To(lifecycle.Failed, g.proc.Err().Error())
			return true
		}
	}
	return false
}

// finish says whether the caller is the one to end the probation. If not, it has ended
// when finish returns.
func (p *probation) finish() bool {
	if p.over.CompareAndSwap(false, true) {
		return true
	}
	<-p.closed
	return false
}

func (p *probation) close() {
	p.supervisor.probation.CompareAndSwap(p, nil)
	close(p.closed)
}

// accept makes the change final. Reason says why that is before the time is over.
func (p *probation) accept(reason string) {
	if !p.finish() {
		return
	}
	defer p.close()
	for _, m := range p.moved {
		if m.next != nil {
			m.stage.log.Info("probation is over, the new generation stays", "generation", m.next.id, "reason", reason)
			m.stage.swapEnded(SwapAccepted, m.old.ID(), m.next.id, reason, p.length)
		}
	}
	for _, m := range p.moved {
		p.supervisor.renewStandby(m.stage)
	}
	p.supervisor.retireAll(p.moved)
}

// rollBack lets requests go the old way again, at one point in time, and ends the new
// generations. It says whether the change has been taken back, by whomever. A process
// that is not there any more cannot get its place back: the new ones stay then.
func (p *probation) rollBack(reason string) bool {
	s := p.supervisor
	if s.isStopping() {
		return false
	}
	if st := p.lost(); st != nil {
		p.accept(fmt.Sprintf("the old generation of stage %q has ended, there is no way back", st.name))
		return p.takenBack
	}
	if !p.finish() {
		return p.takenBack
	}
	defer p.close()
	p.takenBack = true
	s.publishing.Lock()
	for _, m := range p.moved {
		m.stage.revert(m)
	}
	was := s.chain()
	s.stages.Store(&p.before)
	for _, st := range was {
		st.setGone(true)
	}
	for _, st := range p.before {
		st.setGone(false)
	}
	s.publishLocked()
	s.publishing.Unlock()

	back := make([]moved, 0, len(p.moved))
	for _, m := range p.moved {
		m.stage.log.Error("swap rolled back", "from", m.next.ID(), "to", m.old.ID(), "reason", reason)
		m.stage.swapEnded(SwapRolledBack, m.old.ID(), m.next.ID(), reason, 0)
		back = append(back, moved{stage: m.stage, old: m.next})
		if !m.stage.hasStandby() {
			s.renewStandby(m.stage)
		}
	}
	s.retireAll(back)
	return true
}

// lost returns a stage whose process of before has ended, nil if there is none.
func (p *probation) lost() *stage {
	for _, m := range p.moved {
		if m.old != nil && m.old.proc.Err() != nil {
			return m.stage
		}
	}
	return nil
}

// revert makes the generation before a move the one that the host relays to. What needs
// no other process stays as it is in effect.
func (s *stage) revert(m moved) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m.old != nil {
		s.current, s.spec, s.down, s.held = m.old, m.spec.treatedAs(s.spec), false, false
	}
}
