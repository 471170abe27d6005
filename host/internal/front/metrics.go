package front

import (
	"fmt"
	"sync/atomic"
	"time"

	"k8s.io/apiserver/pkg/util/compatibility"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/component-base/metrics"
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // requests of the filters' clients, as kube-apiserver has them

	"github.com/catena-dev/catena/host/internal/canary"
	"github.com/catena-dev/catena/host/internal/relay"
	"github.com/catena-dev/catena/sdk/kubeversion"
)

// The results of a swap and of a reload in the metrics.
const (
	Succeeded  = "success"
	Failed     = "failure"
	RolledBack = "rollback"
	Reverted   = "revert"
)

// Metrics are the metrics of one server about its stages and its configuration. They are
// in a registry of their own: Kubernetes' metrics are in one registry per process.
type Metrics struct {
	registry metrics.KubeRegistry
	stages   *stageCollector

	hops, resumes, swaps, reloads, refusals, limits, shadows, connections *metrics.CounterVec
	starts                                                                *metrics.HistogramVec
	configured                                                            *metrics.Gauge
	certificates                                                          *metrics.GaugeVec
}

// newMetrics registers the metrics that the flags do not disable.
func newMetrics() *Metrics {
	m := &Metrics{
		registry: metrics.NewKubeRegistry(),
		stages:   newStageCollector(),
		hops: metrics.NewCounterVec(&metrics.CounterOpts{
			Name: "catena_relay_hops_total", Help: "Requests handed to a stage, by how that ended: docs/operations.md has the outcomes.",
			StabilityLevel: metrics.ALPHA,
		}, []string{"stage", "outcome"}),
		resumes: metrics.NewCounterVec(&metrics.CounterOpts{
			Name: "catena_watch_resumes_total", StabilityLevel: metrics.ALPHA,
			Help: "Watches of clients that left the process of a stage, by cause, and by result: resumed, or why they ended. " +
				"docs/reliability.md has both.",
		}, []string{"stage", "cause", "result"}),
		swaps: metrics.NewCounterVec(&metrics.CounterOpts{
			Name: "catena_swaps_total",
			Help: "Swaps of a stage by how they ended: success, failure (the old process stayed), rollback, or revert, " +
				"on request. A swap that is refused because another change is under way does not count.",
			StabilityLevel: metrics.ALPHA,
		}, []string{"stage", "result"}),
		limits: metrics.NewCounterVec(&metrics.CounterOpts{
			Name: "catena_stage_limit_reached_total", Help: "Times that a stage has come to a limit of its own or of the host, by the name of the limit.",
			StabilityLevel: metrics.ALPHA,
		}, []string{"stage", "limit"}),
		reloads: metrics.NewCounterVec(&metrics.CounterOpts{
			Name: "catena_config_reloads_total", Help: "Times that the configuration was read anew, by result: success or failure (nothing was changed).",
			StabilityLevel: metrics.ALPHA,
		}, []string{"result"}),
		refusals: metrics.NewCounterVec(&metrics.CounterOpts{
			Name: "catena_stage_requests_refused_total", Help: "Requests that a stage made and is not granted to make, by the grant in stages.NAME.grants that is missing.",
			StabilityLevel: metrics.ALPHA,
		}, []string{"stage", "grant"}),
		shadows: metrics.NewCounterVec(&metrics.CounterOpts{
			Name: "catena_shadow_requests_total", Help: "Requests of the sample of a shadow: equal, different, or why they were not compared (moved, dropped, no response, too large, not sent).",
			StabilityLevel: metrics.ALPHA,
		}, []string{"stage", "result"}),
		connections: metrics.NewCounterVec(&metrics.CounterOpts{
			Name: "catena_connections_refused_total", Help: "Connections of clients that were closed because of a bound: descriptors of the process, or what they hold.",
			StabilityLevel: metrics.ALPHA,
		}, []string{"bound"}),
		starts: metrics.NewHistogramVec(&metrics.HistogramOpts{
			Name: "catena_stage_start_duration_seconds", Help: "Time from the launch of a process of a stage until it took over.",
			Buckets: []float64{0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 60}, StabilityLevel: metrics.ALPHA,
		}, []string{"stage"}),
		configured: metrics.NewGauge(&metrics.GaugeOpts{
			Name: "catena_config_last_reload_success_timestamp_seconds", Help: "When the configuration that is in effect was read.",
			StabilityLevel: metrics.ALPHA,
		}),
		certificates: metrics.NewGaugeVec(&metrics.GaugeOpts{
			Name:           "catena_certificate_expiration_timestamp_seconds",
			Help:           "When the certificate in the file that a flag names ends; of several, the first that is valid.",
			StabilityLevel: metrics.ALPHA,
		}, []string{"flag"}),
	}
	m.registry.CustomMustRegister(m.stages)
	m.registry.MustRegister(m.hops, m.resumes, m.swaps, m.limits, m.reloads, m.refusals, m.shadows, m.connections)
	m.registry.MustRegister(m.starts, m.configured, m.certificates)
	for _, result := range []string{Succeeded, Failed} {
		m.reloads.WithLabelValues(result)
	}
	kubeversion.AddBuildInfo(m.registry.MustRegister, compatibility.DefaultBuildEffectiveVersion())
	return m
}

// ObserveHop counts a request that was handed to a stage.
func (m *Metrics) ObserveHop(stage string, outcome relay.Outcome) {
	m.hops.WithLabelValues(stage, string(outcome)).Inc()
}

// ObserveResume counts a watch that has left a process.
func (m *Metrics) ObserveResume(stage string, r relay.Resume) {
	m.resumes.WithLabelValues(stage, string(r.Cause), string(r.Result)).Inc()
}

// Hops returns what ObserveHop has counted, by stage and outcome; nil if the metric is
// disabled.
func (m *Metrics) Hops() map[string]map[relay.Outcome]uint64 {
	if !m.hops.IsCreated() {
		return nil
	}
	counters := make(chan prometheus.Metric)
	go func() {
		m.hops.CounterVec.Collect(counters)
		close(counters)
	}()
	all := map[string]map[relay.Outcome]uint64{}
	for c := range counters {
		var counted dto.Metric
		if err := c.Write(&counted); err != nil {
			continue // a counter has no way to fail
		}
		labels := map[string]string{}
		for _, l := range counted.GetLabel() {
			labels[l.GetName()] = l.GetValue()
		}
		stage := labels["stage"]
		if all[stage] == nil {
			all[stage] = map[relay.Outcome]uint64{}
		}
		all[stage][relay.Outcome(labels["outcome"])] = uint64(counted.GetCounter().GetValue())
	}
	return all
}

// ObserveStart counts the start of a process of a stage.
func (m *Metrics) ObserveStart(stage string, took time.Duration) {
	m.starts.WithLabelValues(stage).Observe(took.Seconds())
}

// ObserveSwap counts a swap: Succeeded, Failed, RolledBack or Reverted.
func (m *Metrics) ObserveSwap(stage, result string) { m.swaps.WithLabelValues(stage, result).Inc() }

// ObserveLimit counts that a stage has come to a limit.
func (m *Metrics) ObserveLimit(stage, limit string) { m.limits.WithLabelValues(stage, limit).Inc() }

// observeConnection counts a connection of a client that is refused because of a bound.
func (m *Metrics) observeConnection(bound string) { m.connections.WithLabelValues(bound).Inc() }

// ObserveShadow counts a request of a sample by what became of it.
func (m *Metrics) ObserveShadow(stage, result string) {
	m.shadows.WithLabelValues(stage, result).Inc()
}

// ObserveReload counts a reload of the configuration: Succeeded or Failed.
func (m *Metrics) ObserveReload(result string, at time.Time) {
	m.reloads.WithLabelValues(result).Inc()
	if result == Succeeded {
		m.ObserveConfig(at)
	}
}

// ObserveConfig records when the configuration that is in effect was read.
func (m *Metrics) ObserveConfig(at time.Time) { m.configured.Set(float64(at.UnixMilli()) / 1000) }

// ObserveCertificate records when the certificates in the file that a flag names end.
func (m *Metrics) ObserveCertificate(flag string, end time.Time) {
	m.certificates.WithLabelValues(flag).Set(float64(end.Unix()))
}

// SetSupervision sets the source of the metrics about the states of stages.
func (m *Metrics) SetSupervision(source Supervision) { m.stages.source.Store(&source) }

// Supervision is where the states of stages come from. Its functions are called for each
// scrape.
type Supervision struct {
	// States are the names that a state can have.
	States []string
	// Stages returns the stages of the chain as it is.
	Stages func() []StageState
	// Loads returns the requests of each stage.
	Loads func() []relay.Load
	// Faults returns what is wrong with the host.
	Faults func() []FaultState
}

// FaultState is a kind of fault, and the stage that has it, if it is not the whole host's.
type FaultState struct{ Kind, Stage string }

// StageState is the state of a stage.
type StageState struct {
	Stage, State string
	// Restarts is how often the stage was started anew after its process had ended.
	Restarts int
	// Measured reports whether Memory, in bytes, and CPU are those of the stage's processes. CPU is
	// that of all processes that the stage has had.
	Measured bool
	Memory   int64
	CPU      time.Duration
	// Isolation has the names of what isolates its process.
	Isolation []string
	// Canary is nil unless a canary is under way.
	Canary *CanaryState
}

// CanaryState is how far a canary is.
type CanaryState struct {
	Share      float64
	Difference canary.Difference
}

// stageCollector collects the metrics of a Supervision.
type stageCollector struct {
	metrics.BaseStableCollector
	source                atomic.Pointer[Supervision]
	state, restarts, held *metrics.Desc
	memory, cpu           *metrics.Desc
	isolated              *metrics.Desc
	canaryShare           *metrics.Desc
	canaryRequests        *metrics.Desc
	canaryDifference      *metrics.Desc
	fault                 *metrics.Desc
	watches               *metrics.Desc
}

func newStageCollector() *stageCollector {
	return &stageCollector{
		state: metrics.NewDesc("catena_stage_state", "1 for the state in which a stage is, 0 for the others.",
			[]string{"stage", "state"}, nil, metrics.ALPHA, ""),
		restarts: metrics.NewDesc("catena_stage_restarts_total",
			"How often a new process of a stage replaced one that had ended. Failed attempts do not count.",
			[]string{"stage"}, nil, metrics.ALPHA, ""),
		memory: metrics.NewDesc("catena_stage_memory_bytes", "Memory of all processes of a stage, without the pages of files (Linux).",
			[]string{"stage"}, nil, metrics.ALPHA, ""),
		cpu: metrics.NewDesc("catena_stage_cpu_seconds_total", "CPU time of all processes that a stage has had (Linux).",
			[]string{"stage"}, nil, metrics.ALPHA, ""),
		isolated: metrics.NewDesc("catena_stage_isolated", "1 for each means of the kernel that isolates the process of a stage.",
			[]string{"stage", "means"}, nil, metrics.ALPHA, ""),
		canaryShare: metrics.NewDesc("catena_canary_share", "Share of the requests that goes to the new process of a canary, from 0 to 1.",
			[]string{"stage"}, nil, metrics.ALPHA, ""),
		canaryRequests: metrics.NewDesc("catena_canary_requests_total",
			"Requests of a canary by side, old or new, and outcome: served, failed or refused, which is a write that was not accepted.",
			[]string{"stage", "side", "outcome"}, nil, metrics.ALPHA, ""),
		canaryDifference: metrics.NewDesc("catena_canary_difference",
			"By how much larger the share of failed or refused requests is on the new side of a canary, or by which part latency is.",
			[]string{"stage", "of"}, nil, metrics.ALPHA, ""),
		fault: metrics.NewDesc("catena_fault", "1 for each thing that is wrong with the host, as catena status begins with it: docs/status.md has the kinds.",
			[]string{"kind", "stage"}, nil, metrics.ALPHA, ""),
		watches: metrics.NewDesc("catena_watches",
			"Watches of clients that a stage serves, by whether another process can go on with them.",
			[]string{"stage", "resumable"}, nil, metrics.ALPHA, ""),
		held: metrics.NewDesc("catena_held_requests", "Requests that wait for a stage to come back.", nil, nil, metrics.ALPHA, ""),
	}
}

// DescribeWithStability implements metrics.StableCollector.
func (c *stageCollector) DescribeWithStability(ch chan<- *metrics.Desc) {
	ch <- c.state
	ch <- c.restarts
	ch <- c.memory
	ch <- c.cpu
	ch <- c.held
	ch <- c.isolated
	ch <- c.canaryShare
	ch <- c.canaryRequests
	ch <- c.canaryDifference
	ch <- c.fault
	ch <- c.watches
}

// CollectWithStability implements metrics.StableCollector.
func (c *stageCollector) CollectWithStability(ch chan<- metrics.Metric) {
	source := c.source.Load()
	if source == nil {
		return
	}
	series := seriesSet{ch, map[string]bool{}}
	for _, st := range source.Stages() {
		for _, state := range source.States {
			value := 0.0
			if state == st.State {
				value = 1
			}
			series.add(c.state, metrics.GaugeValue, value, st.Stage, state)
		}
		series.add(c.restarts, metrics.CounterValue, float64(st.Restarts), st.Stage)
		if st.Measured {
			series.add(c.memory, metrics.GaugeValue, float64(st.Memory), st.Stage)
			series.add(c.cpu, metrics.CounterValue, st.CPU.Seconds(), st.Stage)
		}
		for _, means := range st.Isolation {
			series.add(c.isolated, metrics.GaugeValue, 1, st.Stage, means)
		}
		if st.Canary != nil {
			c.collectCanary(series, st.Stage, st.Canary)
		}
	}
	held := 0
	for _, l := range source.Loads() {
		held += l.Waiting
		series.add(c.watches, metrics.GaugeValue, float64(l.Resumable), l.Stage, "true")
		series.add(c.watches, metrics.GaugeValue, float64(l.Watches-l.Resumable), l.Stage, "false")
	}
	for _, f := range source.Faults() {
		series.add(c.fault, metrics.GaugeValue, 1, f.Kind, f.Stage)
	}
	series.add(c.held, metrics.GaugeValue, float64(held))
}

func (c *stageCollector) collectCanary(series seriesSet, stage string, state *CanaryState) {
	d := state.Difference
	series.add(c.canaryShare, metrics.GaugeValue, state.Share, stage)
	for side, counts := range map[string]canary.Counts{"old": d.Old, "new": d.New} {
		served := counts.Requests - counts.Failed - counts.Refused
		for outcome, n := range map[string]int64{"served": served, "failed": counts.Failed, "refused": counts.Refused} {
			series.add(c.canaryRequests, metrics.CounterValue, float64(n), stage, side, outcome)
		}
	}
	for of, difference := range map[string]float64{"failed": d.Failed, "refused": d.Refused, "latency": d.Latency} {
		series.add(c.canaryDifference, metrics.GaugeValue, difference, stage, of)
	}
}

// seriesSet sends each series once, the first: a registry takes a second one for an error.
type seriesSet struct {
	to   chan<- metrics.Metric
	sent map[string]bool
}

func (s seriesSet) add(desc *metrics.Desc, kind metrics.ValueType, value float64, labels ...string) {
	key := fmt.Sprintf("%p%q", desc, labels)
	if s.sent[key] {
		return
	}
	s.sent[key] = true
	s.to <- metrics.NewLazyConstMetric(desc, kind, value, labels...)
}
