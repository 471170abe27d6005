package supervisor

import "github.com/catena-dev/catena/host/internal/lifecycle"

// reconcile looks for stages whose process was told of other paths of the stages
// downstream than these list now, which is so when one that is not required comes up late,
// and swaps them in the background.
func (s *Supervisor) reconcile() {
	if len(s.outdated()) == 0 || !s.begin() {
		return
	}
	s.goFor(nil, func() {
		defer s.running.Done()
		end, err := s.Begin(s.background, reconcileChain, "")
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
		if _, err := s.change(s.background, request{specs: s.Specs(), also: names}); err != nil && !s.isStopping() {
			s.log.Error("stages do not know of all paths of those downstream", "stages", names, "error", err)
		}
	})
}

// outdated are the stages that have to be told of others anew; none before the server's
// start has come to the post-start hooks.
func (s *Supervisor) outdated() []string {
	now := s.lock()
	defer now.unlock()
	if !now.hooksDue {
		return nil
	}
	var names []string
	for _, st := range now.chain {
		g := st.current()
		if g != nil && g.Spec().Attach == "" && st.state.State(g.ID()) == lifecycle.Serving && !g.Knows(now.downstream(st)) {
			names = append(names, st.name)
		}
	}
	return names
}
