package front

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/apiserver/pkg/util/compatibility"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // requests of the filters' clients, as kube-apiserver has them

	"github.com/catena-dev/catena/host/internal/relay"
	"github.com/catena-dev/catena/sdk/kubeversion"
)

// hops is registered once per process, as the registry itself exists once.
var hops = sync.OnceValue(func() *metrics.CounterVec {
	vec := metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace:      "catena",
		Subsystem:      "relay",
		Name:           "hops_total",
		Help:           "Requests handed to a stage, by stage and by how that ended.",
		StabilityLevel: metrics.ALPHA,
	}, []string{"stage", "outcome"})
	legacyregistry.MustRegister(vec)
	return vec
})

// ObserveHop counts a request that was handed to a stage in the metric
// catena_relay_hops_total.
func ObserveHop(stage string, outcome relay.Outcome) {
	hops().WithLabelValues(stage, string(outcome)).Inc()
}

// CountedHops returns what ObserveHop has counted in this process so far, by stage and
// outcome; nil if the metric is switched off.
func CountedHops() map[string]map[relay.Outcome]uint64 {
	if !hops().IsCreated() {
		return nil
	}
	counters := make(chan prometheus.Metric)
	go func() {
		hops().CounterVec.Collect(counters)
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

// registerBuildInfo registers the metric kubernetes_build_info, in which upstream
// would show the placeholder of a build without linker flags.
var registerBuildInfo = sync.OnceFunc(func() {
	gauge := metrics.NewGaugeVec(&metrics.GaugeOpts{
		Name:           "kubernetes_build_info",
		Help:           "A metric with a constant '1' value labeled by major, minor, git version, git commit, git tree state, build date, Go version, and compiler from which Kubernetes was built, and platform on which it is running.",
		StabilityLevel: metrics.BETA,
	}, []string{"major", "minor", "git_version", "git_commit", "git_tree_state", "build_date", "go_version", "compiler", "platform"})
	legacyregistry.MustRegister(gauge)
	i := kubeversion.Info(compatibility.DefaultBuildEffectiveVersion())
	gauge.WithLabelValues(i.Major, i.Minor, i.GitVersion, i.GitCommit, i.GitTreeState, i.BuildDate, i.GoVersion, i.Compiler, i.Platform).Set(1)
})
