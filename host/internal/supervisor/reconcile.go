package supervisor

// reconcile looks for stages whose process was told of other paths of the stages behind
// it than these list now, which is so when one that is not required comes up late, and
// swaps them in the background.
func (s *Supervisor) reconcile() {
	if !s.areHooksDue() || len(s.outdated()) == 0 || !s.begin() {
		return
	}
	go func() {
		defer s.running.Done()
		if s.changing.wait(s.background) != nil {
			return
		}
		defer s.changing.done()
		if len(s.outdated()) > 0 {
			s.endProbation()
		}
		names := s.outdated()
		if len(names) == 0 {
			return
		}
		if _, _, err := s.change(s.background, request{specs: s.specs(), also: names}); err != nil && !s.isStopping() {
			s.log.Error("stages do not know of all paths of those behind them", "stages", names, "error", err)
		}
	}()
}

// outdated are the stages that have to be told of others anew.
func (s *Supervisor) outdated() []string {
	var names []string
	chain := s.chain()
	for _, st := range chain {
		if g := st.generation(); g != nil && g.spec.Attach == "" && g.proc.Err() == nil && !g.knows(st.behind(chain)) {
			names = append(names, st.name)
		}
	}
	return names
}
