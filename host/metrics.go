package main

import (
	"context"
	"io"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/catena-dev/catena/host/internal/metrics"
)

// metrics is what /metrics shows: the host's own series, and those of all stages.
func (s *server) metrics(own prometheus.Gatherer) prometheus.Gatherer {
	return metrics.New(metrics.Options{Own: own, Stages: s.metricsSources, Log: s.log.Named("metrics")})
}

func (s *server) metricsSources() []metrics.Source {
	published := s.published.Load()
	if published == nil {
		return nil // no stage has been started
	}
	sources := make([]metrics.Source, len(*published))
	for i, st := range *published {
		sources[i] = metrics.Source{Stage: st.Name, Gather: func(ctx context.Context, w io.Writer) error {
			return s.stages.GatherMetrics(ctx, st.Name, w)
		}}
	}
	return sources
}
