package front

import (
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

// StageState is where a stage stands, for the metrics.
type StageState struct {
	Stage, State string
	// Restarts is how often the stage was brought up after it had ended.
	Restarts int
}

// Supervision says where the stages stand. Both functions are called for each scrape.
type Supervision struct {
	// States are the names that a state can have; Stages are the stages by now.
	States []string
	Stages func() []StageState
	// Held returns how many requests wait for a stage to come back.
	Held func() int64
}

// supervision has the metrics of stages, registered once per process as the registry
// itself exists once.
type supervision struct {
	metrics.BaseStableCollector
	source atomic.Pointer[Supervision]

	state, restarts, held *metrics.Desc
	swaps, reloads        *metrics.CounterVec
	starts                *metrics.HistogramVec
	reloaded              *metrics.Gauge
}

// The results of a swap and of a reload in the metrics.
const (
	Succeeded  = "success"
	Failed     = "failure"
	RolledBack = "rollback"
)

var stageMetrics = sync.OnceValue(func() *supervision {
	s := &supervision{
		state: metrics.NewDesc("catena_stage_state", "1 for the state in which a stage is, 0 for the others.",
			[]string{"stage", "state"}, nil, metrics.ALPHA, ""),
		restarts: metrics.NewDesc("catena_stage_restarts_total", "How often a stage was brought up anew after its process had ended.",
			[]string{"stage"}, nil, metrics.ALPHA, ""),
		held: metrics.NewDesc("catena_held_requests", "Requests that wait for a stage to come back.", nil, nil, metrics.ALPHA, ""),
		swaps: metrics.NewCounterVec(&metrics.CounterOpts{
			Name: "catena_swaps_total", Help: "Swaps of a stage by how they ended: success, failure (the old process stayed) or rollback.",
			StabilityLevel: metrics.ALPHA,
		}, []string{"stage", "result"}),
		reloads: metrics.NewCounterVec(&metrics.CounterOpts{
			Name: "catena_config_reloads_total", Help: "Times that the configuration was read anew, by result: success or failure (nothing was changed).",
			StabilityLevel: metrics.ALPHA,
		}, []string{"result"}),
		starts: metrics.NewHistogramVec(&metrics.HistogramOpts{
			Name: "catena_stage_start_duration_seconds", Help: "Time from the launch of a process of a stage until it took over.",
			Buckets: []float64{0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 60}, StabilityLevel: metrics.ALPHA,
		}, []string{"stage"}),
		reloaded: metrics.NewGauge(&metrics.GaugeOpts{
			Name: "catena_config_last_reload_success_timestamp_seconds", Help: "When the configuration that is in effect was read.",
			StabilityLevel: metrics.ALPHA,
		}),
	}
	legacyregistry.CustomMustRegister(s)
	legacyregistry.MustRegister(s.swaps, s.reloads, s.starts, s.reloaded)
	for _, result := range []string{Succeeded, Failed} {
		s.reloads.WithLabelValues(result)
	}
	return s
})

// SetSupervision makes the metrics say where the stages stand.
func SetSupervision(source Supervision) { stageMetrics().source.Store(&source) }

// ObserveStart counts the start of a process of a stage.
func ObserveStart(stage string, took time.Duration) {
	stageMetrics().starts.WithLabelValues(stage).Observe(took.Seconds())
}

// ObserveSwap counts a swap: Succeeded, Failed or RolledBack.
func ObserveSwap(stage, result string) { stageMetrics().swaps.WithLabelValues(stage, result).Inc() }

// ObserveReload counts a reload of the configuration: Succeeded or Failed.
func ObserveReload(result string, at time.Time) {
	stageMetrics().reloads.WithLabelValues(result).Inc()
	if result == Succeeded {
		ObserveConfig(at)
	}
}

// ObserveConfig tells when the configuration that is in effect was read.
func ObserveConfig(at time.Time) {
	stageMetrics().reloaded.Set(float64(at.UnixMilli()) / 1000)
}

// DescribeWithStability implements metrics.StableCollector.
func (s *supervision) DescribeWithStability(ch chan<- *metrics.Desc) {
	ch <- s.state
	ch <- s.restarts
	ch <- s.held
}

// CollectWithStability implements metrics.StableCollector.
func (s *supervision) CollectWithStability(ch chan<- metrics.Metric) {
	source := s.source.Load()
	if source == nil {
		return
	}
	for _, st := range source.Stages() {
		for _, state := range source.States {
			value := 0.0
			if state == st.State {
				value = 1
			}
			ch <- metrics.NewLazyConstMetric(s.state, metrics.GaugeValue, value, st.Stage, state)
		}
		ch <- metrics.NewLazyConstMetric(s.restarts, metrics.CounterValue, float64(st.Restarts), st.Stage)
	}
	ch <- metrics.NewLazyConstMetric(s.held, metrics.GaugeValue, float64(source.Held()))
}
