package supervisor

import "github.com/catena-dev/catena/host/internal/lifecycle"

// Down is the state of a stage, besides those of its generation: there is no process, and
// requests are refused.
const Down = "down"

// States are all values that Status.State can have.
func States() []string {
	states := []string{Down}
	for s := lifecycle.Starting; s <= lifecycle.BackingOff; s++ {
		states = append(states, s.String())
	}
	return states
}
