package server

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/catena-dev/catena/host/internal/admin"
	"github.com/catena-dev/catena/host/internal/bounds"
	"github.com/catena-dev/catena/host/internal/faults"
	"github.com/catena-dev/catena/host/internal/front"
	"github.com/catena-dev/catena/host/internal/kubeevents"
	"github.com/catena-dev/catena/host/internal/pki"
	"github.com/catena-dev/catena/host/internal/supervisor"
	"github.com/catena-dev/catena/host/internal/systemd"
)

// journal is where what happens to a server is told: in its history and its faults, which the status, the pages and the
// metrics show, in Events of Kubernetes, and to systemd.
type journal struct {
	log      hclog.Logger
	metrics  *front.Metrics
	notifier *notifier
	history  *history
	faults   faults.Host
	events   *kubeevents.Recorder // may be nil
}

func newJournal(
	log hclog.Logger, m *front.Metrics, service systemd.Service, stages *supervisor.Supervisor,
	events *kubeevents.Recorder,
) *journal {
	j := &journal{log: log, metrics: m, history: newHistory(), events: events}
	j.notifier = newNotifier(service, log, stages, &j.faults)
	return j
}

// add tells of what has happened, or is wrong, beside the stages.
func (j *journal) add(e admin.Event) {
	j.history.add(e)
	j.notifier.stagesChanged()
}

// stage counts what happens to the stages, and logs what the supervisor does not.
func (j *journal) stage(e supervisor.Event) {
	j.history.event(e)
	j.notifier.stagesChanged()
	log := j.log.With("stage", e.Stage)
	if k, ok := kubeEvent(e); ok {
		j.events.Record(k)
	}
	row, _ := rowOf(e)
	if row.started {
		j.metrics.ObserveStart(e.Stage, e.Took)
	}
	if row.swap != "" {
		j.metrics.ObserveSwap(e.Stage, row.swap)
	}
	switch e.Kind {
	case supervisor.SwapBegun:
		log.Debug("swap begins", "from", e.From, "reason", e.Reason)
	case supervisor.LimitReached:
		j.metrics.ObserveLimit(e.Stage, e.Limit) // logged by the supervisor
	case supervisor.LimitsNotInForce, supervisor.LimitsInForce:
		j.faults.NoLimits(e.Reason)
	case supervisor.ChainReordered:
		j.log.Info("chain has another order")
	case supervisor.Held:
		log.Info("requests for the stage wait", "generation", e.Generation)
	}
}

// reloaded keeps the result of a reload, and makes an Event of Kubernetes of it.
func (j *journal) reloaded(result *admin.Reload) {
	j.history.add(reloaded(result))
	e := kubeevents.Event{Reason: "ConfigurationReloaded", Message: "configuration " + result.String(), At: result.At}
	if result.Error != "" {
		e.Reason, e.Warning = "ReloadFailed", true
	}
	j.events.Record(e)
}

// certificate tells of a certificate that ends soon.
func (j *journal) certificate(c pki.Certificate) {
	j.metrics.ObserveCertificate(c.Flag, c.End)
	if wrong := j.faults.Certificate(c); wrong != "" {
		j.history.add(admin.Event{Kind: faults.CertificateEnds, Text: wrong, Bad: true})
	}
}

// tellVoidClaims tells of claims that do not count, whenever changed has a value, until ctx ends. A stage can change
// what it claims again and again.
func (j *journal) tellVoidClaims(ctx context.Context, changed <-chan struct{}) {
	for told := map[string]string{}; ; {
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
		void := j.faults.VoidClaims()
		for _, stage := range slices.Sorted(maps.Keys(void)) {
			if text := void[stage]; text != told[stage] {
				j.log.Warn(text, "stage", stage, "missing", "stages."+stage+".grants.claims")
				j.history.add(admin.Event{Kind: faults.ClaimsVoid, Stage: stage, Text: text, Bad: true})
				j.events.Record(kubeevents.Event{Stage: stage, Reason: "ClaimsVoid", Message: text, Warning: true})
			}
		}
		told = void
		j.notifier.stagesChanged()
		select {
		case <-time.After(bounds.LogPause):
		case <-ctx.Done():
			return
		}
	}
}

// writeEvents writes Events of Kubernetes until ctx ends, as long as a stage of the chain serves them.
func (j *journal) writeEvents(ctx context.Context, chain *chainState) {
	if j.events != nil {
		j.events.Run(ctx, func() bool { return slices.Contains(chain.listedPaths(), "/api/v1") })
	}
}
