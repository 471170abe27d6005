// Package lifecycle is what happens to a stage, and in what order, without the
// how: the states of one generation of a stage, the order in which a chain is
// built up and taken down, and the running of hooks. It knows no process and no
// wire; the standard library is all it imports.
package lifecycle

import (
	"fmt"
	"time"
)

// State is where one generation of a stage, that is one process of it, stands.
type State int

// The states in the order in which a healthy generation goes through them. A
// generation ends as Stopped, if that was asked for, or as Failed and maybe BackingOff.
const (
	Starting    State = iota // the process is being launched, up to the handshake
	Configuring              // the stage builds its handler
	Preparing                // the stage finishes what needs the others to be configured
	Serving                  // requests are relayed to it
	Draining                 // it gets no new request and finishes those that it has
	Stopped                  // it has ended as planned
	Failed                   // it has ended otherwise
	StandingBy               // it could serve, and waits for another to end
	BackingOff               // it has failed, and requests wait for the one that is to take its place
)

var stateNames = [...]string{"starting", "configuring", "preparing", "serving", "draining", "stopped", "failed", "standby", "backing off"}

// String gives the state's name as it stands in logs, metrics and the status.
func (s State) String() string {
	if s < 0 || int(s) >= len(stateNames) {
		return fmt.Sprintf("state(%d)", int(s))
	}
	return stateNames[s]
}

// Ended reports whether the generation is over.
func (s State) Ended() bool { return s == Stopped || s == Failed || s == BackingOff }

// CanBecome reports whether a generation may go from s to next: one step ahead, with or
// without standing by before it serves, to Draining from wherever it has a handler, to
// Stopped when it was asked to end, and to Failed from every state that is not an end.
// The one that its stage had goes on to BackingOff when it has failed.
func (s State) CanBecome(next State) bool {
	switch {
	case next == BackingOff:
		return s == Failed
	case s.Ended():
		return false
	case next == Failed || next == Stopped:
		return true
	case next == Draining:
		return s == Preparing || s == Serving || s == StandingBy
	case next == StandingBy:
		return s == Preparing
	case s == StandingBy:
		return next == Serving
	default:
		return next == s+1
	}
}

// Transition is one change of state.
type Transition struct {
	From, To State
	At       time.Time
	// Reason says why a generation ended, empty for the other changes.
	Reason string
}
