package supervisor

import (
	"context"
	"errors"
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
// stage, leaves everything as it was. Apply waits for a change that is under way.
func (s *Supervisor) Apply(ctx context.Context, specs []Spec) (Applied, error) {
	return Applied{}, errors.ErrUnsupported
}
