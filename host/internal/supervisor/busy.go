package supervisor

import "errors"

// ErrBusy is why a swap is refused that could be had a moment later.
var ErrBusy = errors.New("another swap, restart or change of the chain is under way, try again when it is over")

// Specs returns what the stages are made from now, from head to tail.
func (s *Supervisor) Specs() []Spec { return s.specs() }
