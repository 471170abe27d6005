package sdk

import (
	"bufio"
	"bytes"
	"context"
	"sync"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"google.golang.org/grpc/status"

	"github.com/catena-dev/catena/sdk/stagev1"
)

// Metrics is the stage's own registry. What is registered there appears in the host's
// /metrics with the label stage="NAME", next to the series of the process and of the Go
// runtime, which every stage has. Names that begin with catena_ are the host's. A label
// "stage" of the stage's own becomes exported_stage.
func (e *Env) Metrics() prometheus.Registerer { return e.metrics.own }

// AddMetrics makes the series of a gatherer appear as those of Metrics do, for
// libraries that have a registry of their own. Families that two gatherers have are
// merged; their names should have the same type.
func (e *Env) AddMetrics(g prometheus.Gatherer) { e.metrics.add(g) }

// registries hold a stage's metrics.
type registries struct {
	log hclog.Logger
	own *prometheus.Registry
	// process has the families of every process, where no other gatherer has them.
	process *prometheus.Registry

	mu      sync.Mutex
	added   []prometheus.Gatherer
	running *gathering
	warned  string
}

// gathering is a call of all gatherers that is under way, shared by all callers that wait
// for it: a collector that hangs is thus not called again and again.
type gathering struct {
	done     chan struct{}
	families []*dto.MetricFamily // valid when done is closed
}

func newRegistries(log hclog.Logger) *registries {
	r := &registries{log: log, own: prometheus.NewRegistry(), process: prometheus.NewRegistry()}
	r.process.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

func (r *registries) add(g prometheus.Gatherer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.added = append(r.added, g)
}

// gather returns all families as they are now.
func (r *registries) gather(ctx context.Context) ([]*dto.MetricFamily, error) {
	g := r.join()
	select {
	case <-g.done:
		return g.families, nil
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
}

func (r *registries) join() *gathering {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running != nil {
		return r.running
	}
	g := &gathering{done: make(chan struct{})}
	r.running = g
	sources := prometheus.Gatherers{r.guarded(r.own)}
	for _, added := range r.added {
		sources = append(sources, r.guarded(added))
	}
	go func() {
		defer close(g.done)
		var err error
		if g.families, err = sources.Gather(); err != nil {
			r.warn(err.Error()) // the families that could be gathered are returned too
		}
		g.families = append(g.families, r.missing(g.families)...)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.running = nil
	}()
	return g
}

// guarded makes a panic in a collector an error, which costs the series of its gatherer.
func (r *registries) guarded(g prometheus.Gatherer) prometheus.Gatherer {
	return prometheus.GathererFunc(func() (families []*dto.MetricFamily, err error) {
		err = guard(r.log, "metrics", func() (err error) {
			families, err = g.Gather()
			return err
		})
		return families, err
	})
}

// warn logs a problem if it is not the one that was logged last.
func (r *registries) warn(problem string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if problem != r.warned {
		r.log.Warn("some metrics cannot be gathered", "error", problem)
	}
	r.warned = problem
}

// missing returns the families of the process that are not among those gathered.
func (r *registries) missing(gathered []*dto.MetricFamily) []*dto.MetricFamily {
	names := make(map[string]bool, len(gathered))
	for _, f := range gathered {
		names[f.GetName()] = true
	}
	process, err := r.process.Gather()
	if err != nil {
		r.log.Debug("metrics of the process cannot be gathered", "error", err)
	}
	var missing []*dto.MetricFamily
	for _, f := range process {
		if !names[f.GetName()] {
			missing = append(missing, f)
		}
	}
	return missing
}

// metricsPiece is the approximate size of a message with metrics.
const metricsPiece = 256 << 10

// GatherMetrics streams the stage's metrics.
func (s *Service) GatherMetrics(_ *stagev1.GatherMetricsRequest, stream stagev1.Stage_GatherMetricsServer) error {
	env, err := s.configured()
	if err != nil {
		return err
	}
	families, err := env.metrics.gather(stream.Context())
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(pieces{stream}, metricsPiece)
	var text bytes.Buffer
	for _, f := range families {
		text.Reset()
		if _, err := expfmt.MetricFamilyToText(&text, f); err != nil { // a gatherer of another library may have returned anything
			env.metrics.warn(err.Error())
			continue
		}
		if _, err := w.Write(text.Bytes()); err != nil {
			return err
		}
	}
	return w.Flush()
}

// pieces is a writer that sends each write as a message.
type pieces struct {
	stream stagev1.Stage_GatherMetricsServer
}

func (p pieces) Write(text []byte) (int, error) {
	if err := p.stream.Send(&stagev1.GatherMetricsResponse{Text: text}); err != nil {
		return 0, err
	}
	return len(text), nil
}
