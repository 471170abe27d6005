package front

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/catena-dev/catena/host/internal/metrics"
	"github.com/catena-dev/catena/host/internal/relay"
)

// Every metric of the host is in docs/metrics.md, with its type, labels and help.
func TestMetricsDocumentation(t *testing.T) {
	t.Parallel()
	m := newMetrics()
	m.SetSupervision(Supervision{
		States: []string{"serving"},
		Stages: func() []StageState {
			return []StageState{{Stage: "core", State: "serving", Measured: true, Isolation: []string{"user"}, Canary: &CanaryState{}}}
		},
		Loads:  func() []relay.Load { return []relay.Load{{Stage: "core"}} },
		Faults: func() []FaultState { return []FaultState{{"etcd-silent", ""}} },
	})
	m.ObserveHop("core", relay.Served)
	m.ObserveResume("core", relay.Resume{Cause: relay.Drained, Result: relay.WatchResumed})
	m.ObserveSwap("core", Succeeded)
	m.ObserveLimit("core", "memory")
	m.ObserveReload(Succeeded, time.Now())
	m.refusals.WithLabelValues("core", "rewrite")
	m.ObserveShadow("core", "equal")
	m.ObserveStart("core", time.Second)
	m.ObserveCertificate("client-ca-file", time.Now())
	m.observeConnection("heads")
	families, err := metrics.New(metrics.Options{Own: prometheus.Gatherers{m.registry.Gatherer()}, Log: hclog.NewNullLogger(), Stages: func() []metrics.Source {
		return []metrics.Source{{Stage: "core", Gather: func(context.Context, io.Writer) error { return nil }}}
	}}).Gather()
	if err != nil {
		t.Fatal(err)
	}
	var rows strings.Builder
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "catena_") {
			continue
		}
		name := f.GetName()
		if labels := labelsOf(f); len(labels) > 0 {
			name += "{" + strings.Join(labels, ",") + "}"
		}
		fmt.Fprintf(&rows, "| `%s` | %s | %s |\n", name, strings.ToLower(f.GetType().String()), strings.TrimPrefix(f.GetHelp(), "[ALPHA] "))
	}
	checkTable(t, filepath.Join("..", "..", "..", "docs", "metrics.md"), rows.String(), "go test ./host/internal/front -run MetricsDocumentation -update")
}

func labelsOf(f *dto.MetricFamily) []string {
	var names []string
	for _, l := range f.GetMetric()[0].GetLabel() {
		names = append(names, l.GetName())
	}
	return names
}
