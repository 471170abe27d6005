package supervisor

import (
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/catena-dev/catena/host/internal/canary"
)

// canaryErrors is by how much more requests may fail on the new side of a canary for which no condition is given.
const canaryErrors = 0.01

// canaryRun is what makes a probation a canary. The new generations are the current ones from its beginning: their ends
// take it back, and the ends of those before make it final. But requests go to both, see Split, and health checks and
// metrics are those of the generations before, until all requests of clients have moved.
type canaryRun struct {
	stage  string // that is swapped
	plan   canary.Plan
	spread time.Duration
	// ready is how long the new generations took to come up.
	ready time.Duration
	// comparisons are by stage, sides by socket.
	comparisons map[string]*canary.Comparison
	sides       map[string]side

	// step is the present one, until when it lasts, and whether it lasts longer since too few requests have come to the new side. They
	// are read and set under the lock.
	step  int
	until time.Time
	waits bool
}

// side is a generation that is compared.
type side struct {
	comparison *canary.Comparison
	side       canary.Side
}

// canaryLimits are the conditions of a canary: some errors if none is given, and health in any case.
func canaryLimits(r Rollback, plan *canary.Plan) Rollback {
	if r.ErrorRate == 0 && !r.Health && plan.Limits == (canary.Limits{}) {
		r.ErrorRate = canaryErrors
	}
	r.Health = true
	return r
}

func newCanaryRun(_ *locked, c *change, p *probation) *canaryRun {
	run := &canaryRun{stage: c.swap, plan: *c.canary, ready: c.ready, comparisons: map[string]*canary.Comparison{},
		sides: map[string]side{}, until: time.Now().Add(c.canary.For)}
	for _, m := range p.moved {
		of := &canary.Comparison{}
		run.comparisons[m.stage.name] = of
		run.sides[m.old.Listener().Path()] = side{of, canary.Old}
		run.sides[m.next.Listener().Path()] = side{of, canary.New}
		if m.stage.name == c.swap {
			run.spread = m.stage.guarded.spec.DrainSpread
			run.plan.Limits.Failed = p.watched[m.next.Listener().Path()].limit.ErrorRate
		}
	}
	return run
}

// share is that of the present step.
func (r *canaryRun) share(*locked) float64 { return r.plan.Shares[r.step] }

// splits reports whether requests can go to the generations before, too.
func (p *probation) splits() bool {
	return p.canary != nil && !slices.ContainsFunc(p.moved, func(m moved) bool { return m.old.Err() != nil })
}

// EndCanary takes a canary back if one is under way.
func (s *changes) EndCanary(reason string) {
	if p := s.of.onProbation(); p != nil && p.canary != nil {
		p.rollBack(hclog.Warn, reason)
	}
}

// chainBefore is a published chain with the generations before in place of the new ones.
func (p *probation) chainBefore(published []Published) []Published {
	before := slices.Clone(published)
	for i := range before {
		for _, m := range p.moved {
			if m.stage.name == before[i].Name {
				before[i] = m.stage.publishedOf(m.old)
			}
		}
	}
	return before
}

// advance begins the next step of a canary when the present one is over, and the new side has had enough requests in it to be judged by.
func (p *probation) advance(at time.Time) {
	s, r := p.supervisor, p.canary
	lacking := r.difference(r.stage).Lacking()
	held := s.lock()
	over := held.probation.Load() == p && !r.last(held) && !at.Before(r.until)
	waits, due := over && lacking > 0 && !r.waits, over && lacking == 0
	if waits {
		r.waits = true
	}
	if due {
		if r.waits {
			r.until, r.waits = at, false
		}
		r.step++
		r.until = r.until.Add(r.plan.For)
		p.until = r.until.Add(time.Duration(len(r.plan.Shares)-r.step-1) * r.plan.For)
		for _, c := range r.comparisons {
			c.Begin(r.share(held) >= 1) // the old side gets no more
		}
		held.publish()
	}
	held.unlock()
	if waits {
		m := p.of(r.stage)
		m.stage.log.Info("canary waits: too few requests have come to the new process", "lacking", lacking, "from",
			m.old.ID(), "to", m.next.ID())
	}
	if due {
		for _, m := range p.moved {
			p.announceShare(m)
		}
	}
}

// of returns the part of the change that a stage is.
func (p *probation) of(name string) moved {
	return p.moved[slices.IndexFunc(p.moved, func(m moved) bool { return m.stage.name == name })]
}

// last reports whether the present step is the last one.
func (r *canaryRun) last(*locked) bool { return r.step+1 == len(r.plan.Shares) }

// difference is how the new generation of a stage does.
func (r *canaryRun) difference(name string) canary.Difference {
	return canary.Compare(r.comparisons[name].Rows())
}

// announceShare reports the share that a generation gets from now on.
func (p *probation) announceShare(m moved) {
	s, r := p.supervisor, p.canary
	held := s.lock()
	if held.probation.Load() != p { // it has ended since
		held.unlock()
		return
	}
	share, until := r.plan.By.Share(r.share(held)), r.until
	held.swapEnded(m.stage, CanaryStep, m.old.ID(), m.next.ID(), share, 0)
	held.unlock()
	m.stage.log.Info("canary", "share", share, "from", m.old.ID(), "to", m.next.ID(), "version", m.next.Version(),
		"until", until.Format(time.TimeOnly))
}

// Compare counts one request that the process behind a data socket has had while a part of the requests goes to another.
func (s *changes) Compare(socket string, kind canary.Kind, o canary.Outcome) {
	p := s.of.onProbation()
	if p == nil || p.canary == nil {
		return
	}
	if of, ok := p.canary.sides[socket]; ok {
		of.comparison.Add(of.side, kind, o)
	}
}

// exceeded returns the limit that a new generation is beyond; empty if none is.
func (r *canaryRun) exceeded() string {
	for name := range r.comparisons {
		if reason := r.plan.Limits.Exceeded(r.difference(name)); reason != "" {
			return fmt.Sprintf("stage %q: %s", name, reason)
		}
	}
	return ""
}

// CanaryStatus is how far a canary is.
type CanaryStatus struct {
	canary.Plan
	// Step is the present one, from 0, which lasts until Until, or longer: Waits reports whether too few requests have
	// come to the new process for the next step.
	Step  int       `json:"step"`
	Until time.Time `json:"until"`
	Waits bool      `json:"waits"`
	// Difference is what Rows, one for each kind of requests, come to together.
	Difference canary.Difference `json:"difference"`
	Rows       []canary.Row      `json:"rows"`
}
