package supervisor

import (
	"context"
	"fmt"
	"slices"
)

// Applied says what Apply has changed.
type Applied struct {
	Added     []string `json:"added,omitempty"`
	Removed   []string `json:"removed,omitempty"`
	Swapped   []string `json:"swapped,omitempty"`
	Reordered bool     `json:"reordered,omitempty"`
}

// Apply makes the chain what specs say, from head to tail. Stages that are new or have
// changed are brought up beside those that serve, the tail first. A stage whose list of
// stages behind it changes is swapped too, since it has been told of them when it was
// configured. When all are ready, requests move at one point in time, and what has been
// replaced or removed is drained in the background. Until then an error, which names the
// stage, leaves everything as it was. Apply waits for a change that is under way, and ends
// the probation of an earlier one.
func (s *Supervisor) Apply(ctx context.Context, specs []Spec) (Applied, error) {
	if !s.begin() {
		return Applied{}, errStopping
	}
	defer s.running.Done()
	if err := s.changing.wait(ctx); err != nil {
		return Applied{}, fmt.Errorf("nothing has changed: another change of the chain is under way: %w", err)
	}
	defer s.changing.done()
	applied, _, err := s.change(ctx, request{specs: specs})
	if err != nil {
		return Applied{}, fmt.Errorf("nothing has changed: %w", err)
	}
	return applied, nil
}

// specs are what the stages are made from now, from head to tail.
func (s *Supervisor) specs() []Spec {
	var all []Spec
	for _, st := range s.chain() {
		all = append(all, st.present())
	}
	return all
}

// present is the chain as a plan sees it.
func (s *Supervisor) present() []standing {
	var all []standing
	for _, st := range s.chain() {
		now := standing{spec: st.present()}
		if g := st.generation(); g != nil {
			now.up, now.told = g.spec.Attach == "", g.delegates()
		}
		all = append(all, now)
	}
	return all
}

// request is a change of the chain that is asked for.
type request struct {
	// specs are the chain that is wanted, from head to tail.
	specs []Spec
	// swap is the stage whose swap was asked for, empty if none was, and also are others
	// that are swapped though nothing of them has changed.
	swap string
	also []string
	// rollback takes the place of those in the specs if it is not nil.
	rollback *Rollback
}

// change does what is asked for. The caller holds s.changing.
func (s *Supervisor) change(ctx context.Context, r request) (Applied, *change, error) {
	p, err := s.plan(r)
	if err != nil {
		return Applied{}, nil, err
	}
	if p.empty() {
		s.adopt(r.specs)
		return Applied{}, nil, nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.background, func() { cancel(errStopping) })()
	c, err := s.newChange(ctx, p, r)
	if err != nil {
		s.SwapRefused(r.swap, err)
		return Applied{}, nil, err
	}
	defer c.release()
	if err = c.bringUp(ctx); err == nil {
		err = c.move()
	}
	if err != nil {
		c.giveUp(err)
		return Applied{}, nil, err
	}
	c.settle()
	return c.applied(), c, nil
}

// plan is what has to be done for a request. Unless that is nothing, there is no
// probation any more that could change the chain which is planned from.
func (s *Supervisor) plan(r request) (plan, error) {
	on := s.probation.Load()
	p, err := r.plan(s.present())
	if err != nil || p.empty() || on == nil {
		return p, err
	}
	s.endProbation()
	return r.plan(s.present())
}

// endProbation ends the probation of an earlier change, if there is one: the chain is what
// it is then until another change moves. The caller holds s.changing.
func (s *Supervisor) endProbation() {
	if p := s.probation.Load(); p != nil {
		p.accept("another change of the chain has begun")
	}
}

func (r request) plan(present []standing) (plan, error) {
	p, err := planFor(present, r.specs)
	if err != nil {
		return plan{}, err
	}
	for _, name := range append(r.also, r.swap) {
		if name != "" && !slices.Contains(p.swapped, name) {
			p.swapped = append(p.swapped, name)
		}
	}
	return p, nil
}

// adopt takes over from specs what needs no other process, such as a timeout.
func (s *Supervisor) adopt(specs []Spec) {
	for _, spec := range specs {
		if st, err := s.stage(spec.Name); err == nil && st.adopt(spec) {
			s.renewStandby(st)
		}
	}
	s.publish()
}

// adopt takes over from spec what needs no other process, and says whether that changes
// whether the stage has a standby.
func (s *stage) adopt(spec Spec) (standbyChanged bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	standbyChanged = s.spec.Standby != spec.Standby
	s.spec = s.spec.treatedAs(spec)
	return standbyChanged
}

// setSpec makes spec what the stage is made from.
func (s *stage) setSpec(spec Spec) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.spec = spec
}
