package metrics

import (
	"bytes"
	"context"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"github.com/catena-dev/catena/host/internal/bounds"
)

// text is a stage that writes a text.
func text(stage, s string) Source {
	return Source{Stage: stage, Bounds: bounds.StageMetrics(), Gather: func(_ context.Context, w io.Writer) error {
		_, err := io.WriteString(w, s)
		return err
	}}
}

// host returns a registry with two series.
func host() *prometheus.Registry {
	r := prometheus.NewRegistry()
	hops := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "catena_relay_hops_total", Help: "Hops."}, []string{"stage"})
	shared := prometheus.NewCounter(prometheus.CounterOpts{Name: "requests_total", Help: "Requests."})
	r.MustRegister(hops, shared)
	hops.WithLabelValues("core").Inc()
	shared.Inc()
	return r
}

// gather returns all series but those about the time, and what was logged.
func gather(t *testing.T, g *Gatherer) string {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	for _, f := range families {
		if f.GetName() == "catena_stage_scrape_duration_seconds" {
			continue
		}
		if _, err := expfmt.MetricFamilyToText(&out, f); err != nil {
			t.Fatal(err)
		}
	}
	return out.String()
}

func newGatherer(log io.Writer, stages ...Source) *Gatherer {
	return New(Options{
		Own: prometheus.Gatherers{host()}, Stages: func() []Source { return stages },
		Log: hclog.New(&hclog.LoggerOptions{Output: log, DisableTime: true}),
	})
}

func TestGather(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	g := newGatherer(&log,
		text("head", "# HELP requests_total Other words.\n# TYPE requests_total counter\nrequests_total{code=\"200\"} 3\n"+
			"# TYPE took_seconds histogram\ntook_seconds_bucket{le=\"1\"} 1\ntook_seconds_bucket{le=\"+Inf\"} 2\ntook_seconds_sum 5\ntook_seconds_count 2\n"),
		text("tail", "# TYPE requests_total counter\nrequests_total 4\nbare 1\n"),
	)
	want := `# TYPE bare untyped
bare{stage="tail"} 1
# HELP catena_relay_hops_total Hops.
# TYPE catena_relay_hops_total counter
catena_relay_hops_total{stage="core"} 1
# HELP catena_stage_scrape_success Whether the metrics of a stage could be gathered.
# TYPE catena_stage_scrape_success gauge
catena_stage_scrape_success{stage="head"} 1
catena_stage_scrape_success{stage="tail"} 1
# HELP requests_total Requests.
# TYPE requests_total counter
requests_total 1
requests_total{code="200",stage="head"} 3
requests_total{stage="tail"} 4
# TYPE took_seconds histogram
took_seconds_bucket{stage="head",le="1"} 1
took_seconds_bucket{stage="head",le="+Inf"} 2
took_seconds_sum{stage="head"} 5
took_seconds_count{stage="head"} 2
`
	if got := gather(t, g); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if log.Len() > 0 {
		t.Error(log.String())
	}
}

// What a stage says never shows as another's, and a mistake costs it the family alone.
func TestBadStages(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ text, want, absent, log string }{
		"forged label": {
			text: `hits{stage="core"} 1` + "\n", want: `hits{exported_stage="core",stage="bad"} 1`, absent: `{stage="core"} 1` + "\nhits",
		},
		"forged label twice": {
			text: `hits{stage="core",exported_stage="x"} 1` + "\n", want: `hits{exported_exported_stage="core",exported_stage="x",stage="bad"} 1`,
		},
		"Kubernetes' own label": {
			text: `apiserver_watch_events_dispatch_duration_seconds{stage="total"} 1` + "\n", want: `apiserver_watch_events_dispatch_duration_seconds{catena_stage="bad",stage="total"} 1`,
		},
		"forged other label": {
			text: `kubernetes_feature_enabled{stage="BETA",catena_stage="core"} 1` + "\n", want: `kubernetes_feature_enabled{catena_stage="bad",exported_catena_stage="core",stage="BETA"} 1`,
		},
		"reserved name": {
			text: "# TYPE catena_relay_hops_total counter\ncatena_relay_hops_total{outcome=\"x\"} 9\nfine 1\n", want: `fine{stage="bad"} 1`,
			absent: "outcome", log: "names that begin with catena_",
		},
		"other type": {
			text: "# TYPE requests_total gauge\nrequests_total 9\nfine 1\n", want: `fine{stage="bad"} 1`,
			absent: `requests_total{stage="bad"}`, log: "it is a gauge here and a counter elsewhere",
		},
		"series twice": {
			text: "hits 1\nhits 2\n", want: `hits{stage="bad"} 1`, absent: `hits{stage="bad"} 2`, log: "it has a series twice",
		},
		"malformed": {
			text: "fine 1\nhits{ 1\n", want: `catena_stage_scrape_success{stage="bad"} 0`, absent: "fine", log: "malformed",
		},
		"many series": {
			text: strings.Repeat("hits 1\n", 20_001), want: `catena_stage_scrape_success{stage="bad"} 0`, absent: "hits", log: "more than 20000 series",
		},
		"many families": {
			text: strings.Repeat("# HELP a b\n", 10_001), want: `catena_stage_scrape_success{stage="bad"} 0`, log: "more than 10000 lines of comments",
		},
		"many labels": {
			text: "hits{" + strings.Repeat(`a="",`, 200_001) + "} 1\n", want: `catena_stage_scrape_success{stage="bad"} 0`, log: "more than 200000 labels",
		},
		"long": {
			text: "# " + strings.Repeat("x", 4<<20), want: `catena_stage_scrape_success{stage="bad"} 0`, log: "more than 4194304 bytes",
		},
		"empty": {want: `catena_stage_scrape_success{stage="bad"} 1`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log bytes.Buffer
			g := newGatherer(&log, text("bad", test.text), text("good", "good 1\n"))
			for range 3 {
				got := gather(t, g)
				if !strings.Contains(got, test.want) || test.absent != "" && strings.Contains(got, test.absent) {
					t.Errorf("got\n%s", got)
				}
				if !strings.Contains(got, `good{stage="good"} 1`) || !strings.Contains(got, `catena_relay_hops_total{stage="core"} 1`) {
					t.Errorf("others' series are not there:\n%s", got)
				}
			}
			if n := strings.Count(log.String(), "\n"); (test.log != "") != (n == 1) || !strings.Contains(log.String(), test.log) {
				t.Errorf("log: %s", log.String())
			}
		})
	}
}

// A stage that does not respond in time is left out, and logged again only once it has
// come back in between.
func TestSlowStage(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	slow := true
	g := newGatherer(&log, text("good", "good 1\n"), Source{Stage: "slow", Gather: func(ctx context.Context, w io.Writer) error {
		if !slow {
			return nil
		}
		_, _ = io.WriteString(w, "half 1\n")
		<-ctx.Done()
		return ctx.Err()
	}})
	g.opts.Timeout = 10 * time.Millisecond
	for _, slow = range []bool{true, true, false, true} {
		got := gather(t, g)
		want := `catena_stage_scrape_success{stage="slow"} 1`
		if slow {
			want = `catena_stage_scrape_success{stage="slow"} 0`
		}
		if !strings.Contains(got, want) || strings.Contains(got, "half") || !strings.Contains(got, `good{stage="good"} 1`) {
			t.Errorf("got\n%s", got)
		}
	}
	if n := strings.Count(log.String(), "left out: stage=slow"); n != 2 {
		t.Errorf("logged %d times: %s", n, log.String())
	}
}

// A stage cannot fill the host's memory.
func TestEndless(t *testing.T) {
	t.Parallel()
	g := newGatherer(io.Discard, Source{Stage: "endless", Gather: func(_ context.Context, w io.Writer) error {
		for piece := []byte(strings.Repeat("# comment\n", 1<<15)); ; {
			if _, err := w.Write(piece); err != nil {
				return err
			}
		}
	}})
	if got := gather(t, g); !strings.Contains(got, `catena_stage_scrape_success{stage="endless"} 0`) {
		t.Errorf("got\n%s", got)
	}
}

// Those who ask while metrics are gathered get what they get, and the stages are asked once.
func TestSharedScrape(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int32
		respond := make(chan struct{})
		slow := Source{Stage: "slow", Bounds: bounds.StageMetrics(), Gather: func(_ context.Context, w io.Writer) error {
			asked.Add(1)
			<-respond
			_, err := io.WriteString(w, "a 1\n")
			return err
		}}
		g := newGatherer(io.Discard, slow)
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				families, err := g.Gather()
				if err != nil || !slices.ContainsFunc(families, func(f *dto.MetricFamily) bool { return f.GetName() == "a" }) {
					t.Errorf("%v, %v", families, err)
				}
			})
		}
		synctest.Wait() // all have asked
		close(respond)
		all.Wait()
		if n := asked.Load(); n != 1 {
			t.Errorf("asked %d times", n)
		}
	})
}

// What fails, panics or hangs of the host's own metrics costs nothing else, is not called meanwhile, and is one line of the log until it is over.
func TestOwnErrors(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		partial := prometheus.NewRegistry()
		partial.MustRegister(twice{prometheus.NewDesc("twice", "A series that there is twice.", nil, nil)},
			prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "once", Help: "Beside it."}, func() float64 { return 1 }))
		end, failing := make(chan struct{}), true
		var hung atomic.Int32
		hangs := prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
			hung.Add(1)
			<-end
			return []*dto.MetricFamily{gauge("late", "Comes late.")}, nil
		})
		panicking := prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
			if failing {
				panic("oh")
			}
			return partial.Gather()
		})
		var log bytes.Buffer
		g := New(Options{
			Own: prometheus.Gatherers{panicking, hangs, partial, host()}, Stages: func() []Source { return []Source{text("core", "x 1\n")} },
			Log: hclog.New(&hclog.LoggerOptions{Output: &log}),
		})
		gather := func() (map[string]int, error) {
			t.Helper()
			families, err := g.Gather()
			series := map[string]int{}
			for _, f := range families {
				series[f.GetName()] = len(f.GetMetric())
			}
			return series, err
		}
		for range 2 {
			begin := time.Now()
			got, err := gather()
			if err == nil || got["twice"] != 1 || got["once"] != 1 || got["requests_total"] != 1 || got["x"] != 1 {
				t.Errorf("%v, %v", got, err)
			}
			if took := time.Since(begin); took != defaultTimeout {
				t.Errorf("it took %s", took)
			}
		}
		if n := strings.Count(log.String(), "\n"); n != 1 || hung.Load() != 1 {
			t.Errorf("what hangs was called %d times, and the log has\n%s", hung.Load(), log.String())
		}
		close(end)
		failing, partial = false, prometheus.NewRegistry()
		g.own = g.own[:2]
		if got, err := gather(); err != nil || got["x"] != 1 {
			t.Errorf("afterwards %v, %v", got, err)
		}
		failing = true
		if _, err := gather(); err == nil || strings.Count(log.String(), "\n") != 2 {
			t.Errorf("%v, and the log has\n%s", err, log.String())
		}
	})
}

// twice sends its series twice.
type twice struct{ desc *prometheus.Desc }

func (c twice) Describe(ch chan<- *prometheus.Desc) { ch <- c.desc }

func (c twice) Collect(ch chan<- prometheus.Metric) {
	for range 2 {
		ch <- prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, 1)
	}
}
