package server

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/catena-dev/catena/host/internal/admin"
	"github.com/catena-dev/catena/host/internal/bounds"
	"github.com/catena-dev/catena/host/internal/faults"
	"github.com/catena-dev/catena/host/internal/front"
	"github.com/catena-dev/catena/host/internal/kubeevents"
	"github.com/catena-dev/catena/host/internal/supervisor"
	"github.com/catena-dev/catena/host/internal/trial"
)

// event counts what happens to the stages, and logs what the supervisor does not.
func (r *run) event(e supervisor.Event) {
	r.history.event(e)
	r.notifier.stagesChanged()
	log := r.logs.host.With("stage", e.Stage)
	if k, ok := kubeEvent(e); ok {
		r.kubeEvents.Record(k)
	}
	row, _ := rowOf(e)
	if row.started {
		r.front.Metrics().ObserveStart(e.Stage, e.Took)
	}
	if row.swap != "" {
		r.front.Metrics().ObserveSwap(e.Stage, row.swap)
	}
	switch e.Kind {
	case supervisor.SwapBegun:
		log.Debug("swap begins", "from", e.From, "reason", e.Reason)
	case supervisor.SwapDone:
		r.trials.End(e.Stage, trial.ErrSwapped)
	case supervisor.StageRemoved:
		r.trials.End(e.Stage, trial.ErrRemoved)
	case supervisor.LimitReached:
		r.front.Metrics().ObserveLimit(e.Stage, e.Limit) // logged by the supervisor
	case supervisor.LimitsNotInForce, supervisor.LimitsInForce:
		r.faults.NoLimits(e.Reason)
	case supervisor.ChainReordered:
		r.logs.host.Info("chain has another order")
	case supervisor.Held:
		log.Info("requests for the stage wait", "generation", e.Generation)
	}
}

// tellVoidClaims tells of claims that do not count, when there are others, until ctx ends. A stage can change what it
// claims again and again.
func tellVoidClaims(ctx context.Context, r *run) {
	for told := map[string]string{}; ; {
		select {
		case <-r.chain.void:
		case <-ctx.Done():
			return
		}
		void := r.faults.VoidClaims()
		for _, stage := range slices.Sorted(maps.Keys(void)) {
			if text := void[stage]; text != told[stage] {
				r.logs.host.Warn(text, "stage", stage, "missing", "stages."+stage+".grants.claims")
				r.history.add(admin.Event{Kind: faults.ClaimsVoid, Stage: stage, Text: text, Bad: true})
				r.kubeEvents.Record(kubeevents.Event{Stage: stage, Reason: "ClaimsVoid", Message: text, Warning: true})
			}
		}
		told = void
		r.notifier.stagesChanged()
		select {
		case <-time.After(bounds.LogPause):
		case <-ctx.Done():
			return
		}
	}
}

// signaled records a lifecycle signal and passes it on to the stages.
func (r *run) signaled(name string, at time.Time) {
	r.logs.host.Info("lifecycle signal", "signal", name, "at", at.UTC().Format(time.RFC3339Nano))
	r.signals.add(admin.Signal{Name: name, At: at})
	if name == front.ShutdownInitiated {
		r.notifier.stop()
		r.trials.End("", trial.ErrShutdown)
		r.dashboard.Close()
	}
	r.stages.Notify(name, at)
}

// signals are the lifecycle signals so far.
type signals struct {
	mu  sync.Mutex
	all []admin.Signal
}

func (s *signals) add(signal admin.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, signal)
}

func (s *signals) list() []admin.Signal {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.all)
}
