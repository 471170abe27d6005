package lifecycle

import (
	"fmt"
	"time"
)

// Requests is what happens to requests for a stage.
type Requests int

// What can happen to requests.
const (
	Refused Requests = iota // there is no generation for them, and none is waited for
	Relayed                 // they go to the current generation
	Held                    // the current generation has ended, and they wait for the next
)

// Decision is what has to be done after a generation has ended.
type Decision int

// The decisions.
const (
	Nothing      Decision = iota
	TakeOver              // the standby has to be activated, and to serve
	Restart               // another generation has to be brought up; requests are held until then
	Refuse                // the server is stopping: requests are refused from now on
	RenewStandby          // another standby has to be brought up
	RollBack              // a change is on probation: its predecessor has to serve again
	Accept                // a change is on probation: there is no way back any more
)

// Stage is the state of one stage of the chain: its generations, which of them the
// requests go to, which one stands by, and which one can take its place back. It decides
// and does nothing; its owner asks it before each step and does what it says. A refused
// step has changed nothing. The methods must not be called concurrently.
type Stage struct {
	now     func() time.Time
	observe func(id string, t Transition)

	generations map[string]*generation
	// current is the generation that the requests go to; it is there also when it has
	// ended, until another takes its place, and "" before the first.
	current string
	// standby waits for the end of standbyOf.
	standby, standbyOf string
	requests           Requests
	// probation reports whether the current generation has taken the place of predecessor,
	// which is "" if the stage was added, on condition; or that the stage was removed.
	probation         bool
	predecessor       string
	removed, stopping bool
}

// generation is what a Stage knows of one of its generations.
type generation struct {
	state State
	last  Transition
	// retired reports whether its end is wanted.
	retired bool
}

// NewStage returns the state of a stage that has no generation. Observe, which may be
// nil, is called with each transition of a generation; it must not call the Stage.
func NewStage(now func() time.Time, observe func(id string, t Transition)) *Stage {
	if observe == nil {
		observe = func(string, Transition) {}
	}
	return &Stage{now: now, observe: observe, generations: map[string]*generation{}}
}

// Current returns the generation that the requests go to, "" if there was none yet. It may
// have ended.
func (s *Stage) Current() string { return s.current }

// Standby returns the generation that stands by, or "".
func (s *Stage) Standby() string { return s.standby }

// HasStandby reports whether a generation stands by for the current one.
func (s *Stage) HasStandby() bool { return s.standby != "" && s.standbyOf == s.current }

// NeedsStandby reports whether a generation could stand by and none does.
func (s *Stage) NeedsStandby() bool {
	g := s.generations[s.current]
	return g != nil && g.state == Serving && !g.retired && s.standby == "" && !s.removed && !s.stopping
}

// Requests returns what happens to requests.
func (s *Stage) Requests() Requests { return s.requests }

// State returns the state of a generation. One that is not known, or has been forgotten,
// has stopped.
func (s *Stage) State(id string) State { return s.Last(id).To }

// Last returns the latest transition of a generation. Its time is zero in Starting.
func (s *Stage) Last(id string) Transition {
	if g := s.generations[id]; g != nil {
		return g.last
	}
	return Transition{To: Stopped}
}

// Launch begins the life of a generation, in Starting. It is refused when the server is
// stopping or the stage has been removed.
func (s *Stage) Launch(id string) error {
	switch {
	case s.stopping:
		return fmt.Errorf("generation %s cannot start: the server is stopping", id)
	case s.removed:
		return fmt.Errorf("generation %s cannot start: its stage has been removed", id)
	case s.generations[id] != nil:
		return fmt.Errorf("generation %s has been started before", id)
	}
	s.generations[id] = &generation{state: Starting}
	return nil
}

// Advance takes a generation to Configuring, Preparing or Draining.
func (s *Stage) Advance(id string, next State) error {
	if next != Configuring && next != Preparing && next != Draining {
		return fmt.Errorf("a generation does not become %s by itself", next)
	}
	if err := s.can(id, next); err != nil {
		return err
	}
	s.set(id, next, "")
	return nil
}

// StandBy makes a prepared generation the standby of another one, which has to be the
// current one and to serve.
func (s *Stage) StandBy(id, of string) error {
	switch err := s.can(id, StandingBy); {
	case err != nil:
		return err
	case s.current != of, !s.NeedsStandby():
		return fmt.Errorf("generation %s is not needed: %s does not serve, or has a standby", id, of)
	}
	s.set(id, StandingBy, "")
	s.standby, s.standbyOf = id, of
	return nil
}

// Dismiss makes the standby one no longer, and returns it, or "". Its end is
// wanted from now on.
func (s *Stage) Dismiss() string {
	id := s.standby
	s.standby, s.standbyOf = "", ""
	if id != "" {
		s.Retire(id)
	}
	return id
}

// CanServe returns the reason why Serve would be refused.
func (s *Stage) CanServe(id, instead string) error {
	switch err := s.can(id, Serving); {
	case err != nil:
		return err
	case s.stopping:
		return fmt.Errorf("generation %s is not needed: the server is stopping", id)
	case s.removed:
		return fmt.Errorf("generation %s is not needed: its stage has been removed", id)
	case s.current != instead:
		return fmt.Errorf("generation %s is not needed: %s has taken the place", id, s.current)
	}
	return nil
}

// Serve lets the requests go to a generation, in place of the one that is current by
// then: "" if it is the first. It is refused if another one has become current, or if the
// generation is not prepared or has ended.
func (s *Stage) Serve(id, instead string) error {
	if err := s.CanServe(id, instead); err != nil {
		return err
	}
	if s.standby == id {
		s.standby, s.standbyOf = "", ""
	}
	s.set(id, Serving, "")
	s.current, s.requests = id, Relayed
	return nil
}

// Retire marks the end of a generation as wanted: nothing has to be done when it comes.
func (s *Stage) Retire(id string) {
	if g := s.generations[id]; g != nil {
		g.retired = true
	}
}

// Retired reports whether the end of a generation is wanted, or has come.
func (s *Stage) Retired(id string) bool {
	g := s.generations[id]
	return g == nil || g.retired || g.state.Ended()
}

// Ended takes in that the process of a generation has ended, and returns what has to be done.
// There is nothing to do for a process that ends while it is being brought up: that fails, and
// its caller handles the error.
func (s *Stage) Ended(id, reason string) Decision {
	g := s.generations[id]
	if g == nil || g.state.Ended() {
		return Nothing
	}
	stoodBy := id == s.standby
	if stoodBy {
		s.standby, s.standbyOf = "", ""
	}
	if g.retired {
		s.set(id, Stopped, reason)
		return Nothing
	}
	s.set(id, Failed, reason)
	switch {
	case stoodBy:
		return RenewStandby
	case s.probation && (id == s.predecessor || s.removed):
		return Accept
	case id != s.current:
		return Nothing
	case s.stopping:
		s.requests = Refused
		return Refuse
	case s.probation:
		return RollBack
	}
	return s.Successor()
}

// Successor decides who takes the place of the current generation, which has ended: its
// standby, or one that has to be brought up.
func (s *Stage) Successor() Decision {
	switch {
	case !s.State(s.current).Ended() || s.removed:
		return Nothing
	case s.HasStandby():
		return TakeOver
	case s.stopping:
		s.requests = Refused
		return Refuse
	}
	if s.can(s.current, BackingOff) == nil {
		s.set(s.current, BackingOff, "")
	}
	s.requests = Held
	return Restart
}

// Waits reports whether the stage still waits for a generation in place of one that
// has ended; "" stands for the first.
func (s *Stage) Waits(instead string) bool {
	return !s.stopping && !s.removed && s.current == instead && (instead == "" || s.State(instead).Ended())
}

// HoldExpired refuses the requests that wait for a generation in place of one that has
// ended. It reports whether that changes anything.
func (s *Stage) HoldExpired(id string) bool {
	if s.current != id || s.requests != Held {
		return false
	}
	s.requests = Refused
	return true
}

// Probe begins the probation of a change that has just put the current generation in the
// place of predecessor, "" if the stage was added, or that has just removed the stage.
func (s *Stage) Probe(predecessor string) { s.probation, s.predecessor = true, predecessor }

// EndProbation makes the change of the stage final.
func (s *Stage) EndProbation() { s.probation, s.predecessor = false, "" }

// CanRevert reports whether the stage can become what it was before the change that is on
// probation.
func (s *Stage) CanRevert() bool {
	if !s.probation || s.stopping {
		return false
	}
	if s.removed {
		return s.State(s.current) == Serving
	}
	return s.predecessor == "" || s.State(s.predecessor) == Serving
}

// Revert makes the stage what it was before the change that is on probation, and reports
// whether it could. The generation of the change is retired.
func (s *Stage) Revert() bool {
	if !s.CanRevert() {
		return false
	}
	switch {
	case s.removed:
		s.removed, s.requests = false, Relayed
	case s.predecessor == "":
		s.Retire(s.current)
		s.removed = true
	default:
		s.Retire(s.current)
		s.current, s.requests = s.predecessor, Relayed
	}
	s.EndProbation()
	return true
}

// Remove takes the stage out of the chain: nothing is brought up for it any more.
func (s *Stage) Remove() { s.removed = true }

// Stop marks the server as stopping: nothing is brought up any more. It reports whether
// requests waited for a generation, which are refused now.
func (s *Stage) Stop() (refused bool) {
	s.stopping = true
	return s.HoldExpired(s.current)
}

// Forget drops a generation that has ended and is not the current one.
func (s *Stage) Forget(id string) {
	if g := s.generations[id]; g != nil && g.state.Ended() && id != s.current && id != s.predecessor {
		delete(s.generations, id)
	}
}

func (s *Stage) can(id string, next State) error {
	g := s.generations[id]
	if g == nil {
		return fmt.Errorf("generation %s is not known", id)
	}
	if !g.state.CanBecome(next) {
		return fmt.Errorf("generation %s is %s and cannot become %s", id, g.state, next)
	}
	return nil
}

func (s *Stage) set(id string, next State, reason string) {
	g := s.generations[id]
	g.last = Transition{From: g.state, To: next, At: s.now(), Reason: reason}
	g.state = next
	s.observe(id, g.last)
}
