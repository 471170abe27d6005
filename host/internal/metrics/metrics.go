// Package metrics merges the series of the host and of its stages. Those of a stage get
// the label stage. A stage that is down, slow or sends malformed metrics is left out,
// without harm to the others; so is what fails or hangs of the host's own.
package metrics

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"golang.org/x/sync/singleflight"

	"github.com/catena-dev/catena/host/internal/bounds"
	"github.com/catena-dev/catena/host/internal/panics"
)

// Source is a stage.
type Source struct {
	Stage string
	// Gather writes the stage's metrics in the text format 0.0.4.
	Gather func(ctx context.Context, w io.Writer) error
	// Bounds are by how much it may have.
	Bounds bounds.Metrics
}

// Options are the options of a Gatherer.
type Options struct {
	// Own are the host's metrics.
	Own prometheus.Gatherers
	// Stages returns the stages. The first that has a family decides its type and its help.
	Stages func() []Source
	// Timeout bounds what the stages may take, and each of Own; 2 s if zero.
	Timeout time.Duration
	Log     hclog.Logger
}

const defaultTimeout = 2 * time.Second

// Gatherer gathers the metrics of the host and of all stages. Those who ask while it gathers get the same result: they must not change it.
type Gatherer struct {
	opts   Options
	once   onceLog
	shared singleflight.Group
	own    prometheus.Gatherers
}

var _ prometheus.Gatherer = (*Gatherer)(nil)

// New returns a gatherer.
func New(opts Options) *Gatherer {
	if opts.Timeout == 0 {
		opts.Timeout = defaultTimeout
	}
	g := &Gatherer{opts: opts, once: onceLog{log: opts.Log}}
	for _, own := range opts.Own {
		g.own = append(g.own, &bounded{from: own, timeout: opts.Timeout})
	}
	return g
}

// scrape is the result of one scrape of a stage.
type scrape struct {
	stage    string
	families map[string]*dto.MetricFamily
	took     time.Duration
	err      error
}

// Gather implements prometheus.Gatherer. Its error, which it has logged, is about those of the host's own metrics that are left out.
func (g *Gatherer) Gather() ([]*dto.MetricFamily, error) {
	families, err, _ := g.shared.Do("", func() (any, error) { return g.gather() })
	return families.([]*dto.MetricFamily), err
}

func (g *Gatherer) gather() ([]*dto.MetricFamily, error) {
	scrapes := g.scrapeAll()
	own, err := g.own.Gather()
	g.once.own(err)
	m := newMerger(own, g.once.warn)
	for _, s := range scrapes {
		if s.err != nil {
			g.once.warn(s.stage, "", fmt.Sprintf("its metrics cannot be gathered: %v", s.err))
			continue
		}
		g.once.forget(s.stage)
		for _, name := range slices.Sorted(maps.Keys(s.families)) {
			m.add(s.stage, s.families[name])
		}
	}
	m.addScrapes(scrapes)
	return m.sorted(), err
}

// scrapeAll asks all stages at the same time.
func (g *Gatherer) scrapeAll() []scrape {
	ctx, cancel := context.WithTimeout(context.Background(), g.opts.Timeout)
	defer cancel()
	sources := g.opts.Stages()
	scrapes := make([]scrape, len(sources))
	var all sync.WaitGroup
	for i, source := range sources {
		all.Go(func() {
			begin := time.Now()
			s := &scrapes[i]
			s.stage = source.Stage
			s.err = panics.Call(func() (err error) {
				s.families, err = source.families(ctx)
				return err
			})
			s.took = time.Since(begin)
		})
	}
	all.Wait()
	return scrapes
}

func (s Source) families(ctx context.Context) (map[string]*dto.MetricFamily, error) {
	text := &boundedText{bounds: s.Bounds}
	if err := s.Gather(ctx, text); err != nil {
		return nil, err
	}
	families, err := Parse(reader{ctx, &text.text})
	if err != nil {
		return nil, fmt.Errorf("malformed: %w", err)
	}
	return families, nil
}

// Parse reads metrics in Prometheus' text format as the host does those of stages. A panic of the library's parser, which some texts
// cause, is an error.
func Parse(text io.Reader) (families map[string]*dto.MetricFamily, err error) {
	defer func() {
		if p := recover(); p != nil {
			families, err = nil, fmt.Errorf("%v", p)
		}
	}()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	return parser.TextToMetricFamilies(text)
}

// Check returns what the host would not take of the metrics of a stage.
func Check(text io.Reader) error {
	within := &boundedText{bounds: bounds.StageMetrics()}
	if _, err := io.Copy(within, text); err != nil {
		return err
	}
	families, err := Parse(&within.text)
	if err != nil {
		return fmt.Errorf("malformed: %w", err)
	}
	var errs []error
	m := newMerger(nil, func(_, family, text string) { errs = append(errs, fmt.Errorf("%s: %s", family, text)) })
	for _, name := range slices.Sorted(maps.Keys(families)) {
		m.add("stage", families[name])
	}
	return errors.Join(errs...)
}

// reader reads until ctx ends.
type reader struct {
	ctx context.Context
	io.Reader
}

func (r reader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, context.Cause(r.ctx)
	}
	return r.Reader.Read(p)
}
