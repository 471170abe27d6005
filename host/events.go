package main

import (
	"slices"
	"time"

	"github.com/catena-dev/catena/host/internal/front"
	"github.com/catena-dev/catena/host/internal/supervisor"
)

// event counts what happens to the stages, and logs what the supervisor does not.
func (s *server) event(e supervisor.Event) {
	log := s.log.With("stage", e.Stage)
	switch e.Kind {
	case supervisor.Restarted, supervisor.TookOver, supervisor.StageAdded:
		front.ObserveStart(e.Stage, e.Took)
	case supervisor.SwapBegun:
		log.Debug("swap begins", "from", e.From, "reason", e.Reason)
	case supervisor.SwapDone:
		front.ObserveStart(e.Stage, e.Took)
		front.ObserveSwap(e.Stage, front.Succeeded)
	case supervisor.SwapFailed:
		front.ObserveSwap(e.Stage, front.Failed) // who asked for it logs why
	case supervisor.SwapRolledBack:
		front.ObserveSwap(e.Stage, front.RolledBack)
	case supervisor.ChainReordered:
		s.log.Info("chain has another order")
	case supervisor.Held:
		log.Info("requests for the stage wait", "generation", e.Generation)
	}
}

// lifecycleSignal is a lifecycle signal that the server has come to.
type lifecycleSignal struct {
	Name string    `json:"name"`
	At   time.Time `json:"at"`
}

// signaled takes note of a lifecycle signal and passes it on to the stages.
func (s *server) signaled(name string, at time.Time) {
	s.log.Info("lifecycle signal", "signal", name, "at", at.UTC().Format(time.RFC3339Nano))
	s.mu.Lock()
	s.signals = append(s.signals, lifecycleSignal{name, at})
	s.mu.Unlock()
	s.stages.Notify(name, at)
}

// hostStatus is where a running host stands.
type hostStatus struct {
	// Stages are in the order of the chain.
	Stages []supervisor.Status `json:"stages"`
	// Signals have come in this order.
	Signals []lifecycleSignal `json:"signals"`
	// LastReload is nil if the configuration is that of the start.
	LastReload *reloaded `json:"lastReload,omitempty"`
}

func (s *server) status() hostStatus {
	s.mu.Lock()
	signals := slices.Clone(s.signals)
	s.mu.Unlock()
	return hostStatus{Stages: s.stages.Status(), Signals: signals, LastReload: s.lastReload.Load()}
}

// stageStates are where the stages stand, for the metrics.
func (s *server) stageStates() []front.StageState {
	var states []front.StageState
	for _, st := range s.stages.Status() {
		states = append(states, front.StageState{Stage: st.Stage, State: st.State, Restarts: st.Restarts})
	}
	return states
}

// heldRequests is how many requests wait for a stage to come back.
func (s *server) heldRequests() int64 {
	var n int64
	for _, l := range s.chain.Loads() {
		n += int64(l.Waiting)
	}
	return n
}
