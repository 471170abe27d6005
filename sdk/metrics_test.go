package sdk_test

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/catena-dev/catena/sdk"
	"github.com/catena-dev/catena/sdk/stagetest"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// A stage's own series, those of a library's registry, and those of the process.
func TestMetrics(t *testing.T) {
	t.Parallel()
	stage := stagetest.Start(t, sdk.Stage{Name: "measured", New: func(env *sdk.Env) (http.Handler, error) {
		env.ClaimPrefix("/")
		hits := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "hits_total", Help: "Hits."}, []string{"path"})
		env.Metrics().MustRegister(hits)
		library := prometheus.NewRegistry()
		open := prometheus.NewGauge(prometheus.GaugeOpts{Name: "library_open"})
		goroutines := prometheus.NewGauge(prometheus.GaugeOpts{Name: "go_goroutines"})
		library.MustRegister(open, goroutines)
		goroutines.Set(-1)
		env.AddMetrics(library)
		hits.WithLabelValues("/a").Add(2)
		return nil, nil
	}}, stagetest.Options{})
	got := stage.Metrics(t)
	for _, want := range []string{
		"# TYPE hits_total counter\nhits_total{path=\"/a\"} 2\n", "library_open 0\n",
		"\ngo_goroutines -1\n", "go_gc_duration_seconds_count", "process_start_time_seconds",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if n := strings.Count(got, "\ngo_goroutines "); n != 1 {
		t.Errorf("go_goroutines is there %d times", n)
	}
}

// A collector that panics costs the series of its registry, and is logged.
func TestMetricsFail(t *testing.T) {
	t.Parallel()
	stage := stagetest.Start(t, sdk.Stage{Name: "measured", New: func(env *sdk.Env) (http.Handler, error) {
		good := prometheus.NewGauge(prometheus.GaugeOpts{Name: "good"})
		bad := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "bad"}, func() float64 { panic("boom") })
		library := prometheus.NewRegistry()
		library.MustRegister(bad)
		env.Metrics().MustRegister(good)
		env.AddMetrics(library)
		return nil, nil
	}}, stagetest.Options{})
	for range 2 {
		if got := stage.Metrics(t); !strings.Contains(got, "\ngood 0\n") || strings.Contains(got, "bad") {
			t.Errorf("got\n%s", got)
		}
	}
	log := stage.Log()
	if n := strings.Count(log, "some metrics cannot be gathered"); n != 1 || !strings.Contains(log, "metrics_test.go") {
		t.Errorf("logged %d times:\n%s", n, log)
	}
}

// A family that cannot be written is left out alone.
func TestMetricsWithoutAName(t *testing.T) {
	t.Parallel()
	stage := stagetest.Start(t, sdk.Stage{Name: "measured", New: func(env *sdk.Env) (http.Handler, error) {
		env.Metrics().MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "good"}))
		env.AddMetrics(prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
			return []*dto.MetricFamily{{Type: dto.MetricType_GAUGE.Enum(), Metric: []*dto.Metric{{Gauge: &dto.Gauge{Value: new(float64)}}}}}, nil
		}))
		return nil, nil
	}}, stagetest.Options{})
	if got := stage.Metrics(t); !strings.Contains(got, "\ngood 0\n") {
		t.Errorf("got\n%s", got)
	}
}

// A collector that hangs is asked once, however often the host asks, and the stage has
// metrics again when it has returned.
func TestMetricsHang(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	release := make(chan struct{})
	stage := stagetest.Start(t, sdk.Stage{Name: "measured", New: func(env *sdk.Env) (http.Handler, error) {
		slow := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "slow"}, func() float64 {
			asked.Add(1)
			<-release
			return 7
		})
		env.Metrics().MustRegister(slow)
		return nil, nil
	}}, stagetest.Options{})
	for i := range 3 {
		ctx, cancel := context.WithCancel(t.Context())
		returned := make(chan error, 1)
		go func() {
			stream, err := stage.RPC.GatherMetrics(ctx, &stagev1.GatherMetricsRequest{})
			if err == nil {
				_, err = stream.Recv()
			}
			returned <- err
		}()
		if i == 0 {
			eventually(t, "the collector is asked", func() bool { return asked.Load() == 1 })
		}
		select {
		case err := <-returned:
			t.Errorf("returned before the collector: %v", err)
		case <-time.After(20 * time.Millisecond): // for the others to get there, if they can
			cancel()
			if err := <-returned; status.Code(err) != codes.Canceled {
				t.Errorf("%v", err)
			}
		}
		cancel()
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("asked %d times while it hangs", n)
	}
	close(release)
	if got := stage.Metrics(t); !strings.Contains(got, "\nslow 7\n") {
		t.Error(got)
	}
	if n := asked.Load(); n > 2 {
		t.Errorf("asked %d times", n)
	}
}
