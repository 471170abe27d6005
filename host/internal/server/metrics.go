package server

import (
	"github.com/catena-dev/catena/host/internal/faults"
	"github.com/catena-dev/catena/host/internal/front"
	"github.com/catena-dev/catena/host/internal/supervisor"
)

// faultStates are what is wrong, for the metrics.
func faultStates(list []faults.Fault) []front.FaultState {
	states := make([]front.FaultState, 0, len(list))
	for _, f := range list {
		states = append(states, front.FaultState{Kind: f.Kind, Stage: f.Stage})
	}
	return states
}

// stageStates are the states of the stages, for the metrics.
func stageStates(stages *supervisor.Supervisor) []front.StageState {
	var states []front.StageState
	used := map[string]supervisor.StageUsage{}
	for _, u := range stages.Usage() {
		used[u.Stage] = u
	}
	for _, st := range stages.Status() {
		u, measured := used[st.Stage]
		var canary *front.CanaryState
		if p := st.Probation; p != nil && p.Canary != nil {
			canary = &front.CanaryState{Share: p.Canary.Shares[p.Canary.Step], Difference: p.Canary.Difference}
		}
		states = append(states, front.StageState{
			Stage: st.Stage, State: string(st.State), Restarts: st.Restarts, Measured: measured, Memory: u.Memory, CPU: u.CPU,
			Isolation: st.Isolation, Canary: canary,
		})
	}
	return states
}
