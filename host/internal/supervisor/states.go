package supervisor

import "github.com/catena-dev/catena/host/internal/lifecycle"

// The states of a stage, besides those of a generation.
const (
	// BackingOff: its process has ended, requests wait for another.
	BackingOff = "backing off"
	// Down: there is no process, and requests are refused.
	Down = "down"
)

// States are all values that Status.State can have.
func States() []string {
	states := []string{BackingOff, Down}
	for s := lifecycle.Starting; s <= lifecycle.StandingBy; s++ {
		states = append(states, s.String())
	}
	return states
}
