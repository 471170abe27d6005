package front

import (
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/catena-dev/catena/host/internal/relay"
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
