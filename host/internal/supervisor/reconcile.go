package supervisor

import "github.com/catena-dev/catena/host/internal/lifecycle"

// reconcile looks for stages whose process was told of other paths of the stages
// downstream than these list now, which is so when one that is not required comes up late,
// and swaps them in the background.
func (s *changes) reconcile() {
	if len(s.outdated()) == 0 || !s.of.begin() {
		return
	}
	s.of.goFor(nil, func() {
		defer s.of.running.Done()
		end, err := s.Begin(s.of.background, reconcileChain, "")
		if err != nil {
			return // beside a canary: it is done when that ends
		}
		defer end()
		if len(s.outdated()) > 0 {
			s.endProbation(anotherChange)
		}
		names := s.outdated()
		if len(names) == 0 {
			return
		}
		if _, err := s.change(s.of.background, request{specs: s.of.Specs(), also: names}); err != nil && !s.of.isStopping() {
			s.of.opts.Log.Error("stages do not know of all paths of those downstream", "stages", names, "error", err)
		}
	})
}

// outdated are the stages that have to be told of others anew; none before the server's
// start has come to the post-start hooks.
func (s *changes) outdated() []string {
	held := s.of.lock()
	defer held.unlock()
	if !held.hooksDue {
		return nil
	}
	var names []string
	for _, st := range held.chain {
		g := st.guarded.current()
		if g != nil && g.Spec().Attach == "" && st.guarded.machine.State(g.ID()) == lifecycle.Serving && !g.Knows(held.downstream(st)) {
			names = append(names, st.name)
		}
	}
	return names
}

// swapFor begins to swap the stage of a process for a reason, and reports whether it has.
// It does not disturb a change that is under way or on probation. The swap is final: the same
// binary, with less memory, has nothing to prove.
func (s *changes) swapFor(x limited, reason string) bool {
	end, err := s.Begin(s.of.background, swapForLimit, x.stage.name)
	if err != nil {
		return false
	}
	s.of.goFor(nil, func() {
		defer end()
		held := s.of.lock()
		serves := x.stage.guarded.current() == x.Generation && x.stage.guarded.machine.State(x.ID()) == lifecycle.Serving
		held.unlock()
		if !serves {
			return
		}
		r := request{specs: s.of.Specs(), swap: x.stage.name, rollback: &Rollback{}, reason: reason}
		if _, err := s.change(s.of.background, r); err != nil && !s.of.isStopping() {
			x.stage.log.Error("stage at its limit goes on with its old generation", "generation", x.ID(), "error", err)
		}
	})
	return true
}
