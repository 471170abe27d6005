package supervisor

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/catena-dev/catena/sdk/stagev1"
)

const (
	// leastRequests is how many requests a generation must have had before its rate of
	// errors says anything.
	leastRequests = 20
	// healthPoll is how often a generation on probation is asked for its health, and
	// healthStrikes how many times in a row it may be bad.
	healthPoll    = 500 * time.Millisecond
	healthStrikes = 2
)

// probation is the time after a change in which it can be taken back: the generations
// that were before are kept as they were, without requests.
type probation struct {
	supervisor *Supervisor
	before     []*stage
	moved      []moved
	length     time.Duration
	until      time.Time
	// watched are the new generations by their sockets.
	watched map[string]*watched
	// over is set by the first who ends it, and closed when that is done. takenBack, which
	// holds from then on, says that the generations of before have their places again.
	over      atomic.Bool
	closed    chan struct{}
	takenBack bool
}

// watched is a generation on probation.
type watched struct {
	generation       *generation
	limit            Rollback
	requests, failed atomic.Int64
}

// probation is what the change needs of one, nil if none is wanted. One that would have
// nothing to go back to is not.
func (c *change) probation() *probation {
	p := &probation{
		supervisor: c.supervisor, before: c.before, moved: c.moved,
		watched: map[string]*watched{}, closed: make(chan struct{}),
	}
	for _, m := range c.moved {
		if m.old != nil && m.old.proc.Err() != nil {
			return nil
		}
		if m.next == nil {
			continue
		}
		limit := m.next.spec.Rollback
		if c.rollback != nil {
			limit = *c.rollback
		}
		if !limit.wanted() {
			continue
		}
		if limit.Probation <= 0 {
			limit.Probation = DefaultProbation
		}
		p.length = max(p.length, limit.Probation)
		p.watched[m.next.listener.Path()] = &watched{generation: m.next, limit: limit}
	}
	if len(p.watched) == 0 {
		return nil
	}
	return p
}

// begin lets the time run.
func (p *probation) begin() {
	s := p.supervisor
	p.until = time.Now().Add(p.length)
	for _, m := range p.moved {
		m.stage.mu.Lock()
		if m.stage.lastSwap != nil && m.next != nil {
			m.stage.lastSwap.Result = "on probation"
		}
		m.stage.mu.Unlock()
	}
	s.probation.Store(p)
	s.running.Go(p.run)
	for _, m := range p.moved {
		for _, g := range []*generation{m.old, m.next} {
			if g != nil && g.proc.Err() != nil {
				p.ended(g) // before anybody could know of the probation
			}
		}
	}
}

// run ends the probation when its time is over, or when checks fail.
func (p *probation) run() {
	strikes := 0
	for {
		select {
		case <-p.closed:
			return
		case <-p.supervisor.background.Done():
			return
		case <-time.After(min(healthPoll, max(0, time.Until(p.until)))):
		}
		if !time.Now().Before(p.until) {
			p.accept("")
			return
		}
		err := p.unhealthy()
		if strikes++; err == nil {
			strikes = 0
		}
		if strikes >= healthStrikes {
			p.rollBack(err.Error())
			return
		}
	}
}

// unhealthy returns the first check that fails of the generations whose health counts.
func (p *probation) unhealthy() error {
	for _, w := range p.watched {
		if !w.limit.Health {
			continue
		}
		for _, c := range w.generation.prepared.GetHealthChecks() {
			if err := w.generation.counts(p.supervisor.background, c); err != nil {
				return err
			}
		}
	}
	return nil
}

// counts returns the error of a check of readiness or liveness.
func (g *generation) counts(ctx context.Context, c *stagev1.HealthCheck) error {
	if !c.GetReadyz() && !c.GetLivez() {
		return nil
	}
	if err := g.check(ctx, c.GetName()); err != nil {
		return fmt.Errorf("check %q of stage %q fails: %w", c.GetName(), g.Name(), err)
	}
	return nil
}

// Observe counts one request that the process behind a data socket has had, for the
// rate of errors after a swap. It costs next to nothing if there has been none. Failed
// is an answer with a status of 500 or more, or no answer.
func (s *Supervisor) Observe(socket string, failed bool) {
	p := s.probation.Load()
	if p == nil {
		return
	}
	if w := p.watched[socket]; w != nil {
		if reason := w.count(failed); reason != "" && s.begin() {
			go func() {
				defer s.running.Done()
				p.rollBack(reason)
			}()
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
	if rate := float64(bad) / float64(n); w.limit.ErrorRate > 0 && n >= leastRequests && rate > w.limit.ErrorRate {
		return fmt.Sprintf("%d of %d requests to stage %q have failed (%.1f%%, the limit is %.1f%%)",
			bad, n, w.generation.Name(), 100*rate, 100*w.limit.ErrorRate)
	}
	return ""
}
