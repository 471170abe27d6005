package front

import (
	"io"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/mux"
	"k8s.io/apiserver/pkg/server/routes"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/component-base/metrics/prometheus/slis"
)

// installMetrics is what GenericAPIServer does by itself if config.EnableMetrics is
// set, but for the gatherer of /metrics.
func (f *Frontend) installMetrics(config *genericapiserver.Config) {
	paths := f.server.Handler.NonGoRestfulMux
	// Kubernetes' metrics are registered when the path is installed.
	routes.DefaultMetrics{}.Install(mux.NewPathRecorderMux("unused"))
	own := prometheus.Gatherers{legacyregistry.DefaultGatherer, f.metrics.registry.Gatherer()}
	var gatherer prometheus.Gatherer = own
	if f.opts.Metrics != nil {
		gatherer = f.opts.Metrics(own)
	}
	handler := promhttp.HandlerFor(gatherer, promhttp.HandlerOpts{
		ProcessStartTime: legacyregistry.GetProcessStart(),
		CoalesceGather:   true,
		ErrorHandling:    promhttp.ContinueOnError,
		Registry:         f.metrics.registry.Registerer(), // counts the errors
	})
	f.metricsPage = handler
	if !config.EnableProfiling {
		paths.Handle("/metrics", handler)
		slis.SLIMetrics{}.Install(paths)
		return
	}
	paths.Handle("/metrics", f.withReset(handler))
	slis.SLIMetricsWithReset{}.Install(paths)
}

// ServeMetrics writes what /metrics shows.
func (f *Frontend) ServeMetrics(w http.ResponseWriter, r *http.Request) {
	f.metricsPage.ServeHTTP(w, r)
}

// withReset resets the host's own metrics for the method DELETE.
func (f *Frontend) withReset(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodDelete {
			legacyregistry.Reset()
			f.metrics.registry.Reset()
			_, _ = io.WriteString(w, "metrics reset\n")
			return
		}
		handler.ServeHTTP(w, r)
	})
}
