package supervisor

import "github.com/catena-dev/catena/host/internal/lifecycle"

// The states of a stage, besides those of a generation.
const (
	backingOff = "backing off"
	down       = "down"
)

// States are all values that Status.State can have.
func States() []string {
	states := []string{backingOff, down}
	for s := lifecycle.Starting; s <= lifecycle.StandingBy; s++ {
		states = append(states, s.String())
	}
	return states
}
