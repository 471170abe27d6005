package front_test

import (
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/catena-dev/catena/host/internal/front"
	"github.com/catena-dev/catena/host/internal/relay"
)

func TestMetricsOfStages(t *testing.T) {
	t.Parallel()
	s := start(t, open(t), func(http.ResponseWriter, *http.Request) {})
	var stages atomic.Pointer[[]front.StageState]
	stages.Store(&[]front.StageState{{Stage: "core", State: "serving", Restarts: 2}, {Stage: "gone", State: "down"}})
	m := s.Metrics()
	m.SetSupervision(front.Supervision{
		States: []string{"serving", "down"},
		Stages: func() []front.StageState { return *stages.Load() },
		Loads:  func() []relay.Load { return []relay.Load{{Stage: "core", Waiting: 7, Watches: 9, Resumable: 7}} },
		Faults: func() []front.FaultState { return []front.FaultState{{Kind: "release-changed", Stage: "core"}} },
	})
	m.ObserveHop("core", relay.Served)
	m.ObserveResume("core", relay.Resume{Cause: relay.Broken, Result: relay.Expired})
	m.ObserveStart("core", 300*time.Millisecond)
	m.ObserveSwap("core", front.RolledBack)
	m.ObserveReload(front.Succeeded, time.Unix(1234, 0))
	m.ObserveReload(front.Failed, time.Unix(5678, 0))
	admin := s.admin(t)
	body := admin.get(t, "/metrics").body
	for _, want := range []string{
		`catena_stage_state{stage="core",state="serving"} 1`, `catena_stage_state{stage="core",state="down"} 0`,
		`catena_stage_state{stage="gone",state="down"} 1`,
		`catena_stage_restarts_total{stage="core"} 2`,
		`catena_watches{resumable="true",stage="core"} 7`, `catena_watches{resumable="false",stage="core"} 2`,
		`catena_watch_resumes_total{cause="broken",result="expired",stage="core"} 1`,
		`catena_held_requests 7`, `catena_fault{kind="release-changed",stage="core"} 1`,
		`catena_relay_hops_total{outcome="served",stage="core"} 1`,
		`catena_swaps_total{result="rollback",stage="core"} 1`,
		`catena_stage_start_duration_seconds_bucket{stage="core",le="0.5"} 1`,
		`catena_config_reloads_total{result="success"} 1`,
		`catena_config_reloads_total{result="failure"} 1`,
		`catena_config_last_reload_success_timestamp_seconds 1234`,
		`# HELP catena_swaps_total [ALPHA] Swaps of a stage by how they ended: success, failure (the old process stayed), rollback, or revert, on request. A swap that is refused because another change is under way does not count.`,
	} {
		if !strings.Contains(body, "\n"+want+"\n") {
			t.Errorf("no %s", want)
		}
	}
	if got := m.Hops()["core"][relay.Served]; got != 1 {
		t.Errorf("%d hops were counted, want 1", got)
	}
	stages.Store(&[]front.StageState{{Stage: "core", State: "serving"}})
	if body := admin.get(t, "/metrics").body; strings.Contains(body, `stage="gone"`) {
		t.Error("a stage that is no longer in the chain is in the metrics")
	}
	admin.do(t, http.MethodDelete, "/metrics")
	if body := admin.get(t, "/metrics").body; strings.Contains(body, "catena_swaps_total{") {
		t.Error("DELETE has not reset the metrics")
	}
}

// What there is twice, each kind of fault and each stage, has one series, and takes no metric away.
func TestWhatThereIsTwiceHasOneSeries(t *testing.T) {
	t.Parallel()
	s := start(t, open(t), func(http.ResponseWriter, *http.Request) {})
	stage := front.StageState{Stage: "core", State: "serving", Measured: true, Isolation: []string{"user", "user"}, Canary: &front.CanaryState{}}
	var wrong []front.FaultState
	for _, kind := range []string{
		"etcd-silent", "etcd-full", "stage-down", "not-ready", "etcd-nearly-full", "release-changed", "certificate-ends", "any other",
	} {
		ofHost, ofStage := front.FaultState{Kind: kind}, front.FaultState{Kind: kind, Stage: "core"}
		wrong = append(wrong, ofHost, ofStage, ofHost, ofStage)
	}
	s.Metrics().SetSupervision(front.Supervision{
		States: []string{"serving", "serving"},
		Stages: func() []front.StageState { return []front.StageState{stage, stage} },
		Loads:  func() []relay.Load { return nil },
		Faults: func() []front.FaultState { return wrong },
	})
	s.admin(t).get(t, "/metrics")
	got := s.admin(t).get(t, "/metrics") // has the errors of the one before
	if n := strings.Count(got.body, "\ncatena_fault{"); got.code != http.StatusOK || n != len(wrong)/2 {
		t.Errorf("%d, with %d faults, want %d\n%s", got.code, n, len(wrong)/2, got.body)
	}
	if !strings.Contains(got.body, "\n"+`promhttp_metric_handler_errors_total{cause="gathering"} 0`+"\n") {
		t.Error("errors were counted, or they are not counted")
	}
}

// What could be gathered is shown, whatever could not.
func TestMetricsInSpiteOfAnError(t *testing.T) {
	t.Parallel()
	s := newServerWith(t, open(t), func(o *front.Options) {
		o.Metrics = func(own prometheus.Gatherers) prometheus.Gatherer {
			return prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
				families, err := own.Gather()
				return families, errors.Join(err, errors.New("one is missing"))
			})
		}
	})
	s.run(t)
	s.waitReady(t)
	s.admin(t).get(t, "/metrics")
	got := s.admin(t).get(t, "/metrics")
	if got.code != http.StatusOK || !strings.Contains(got.body, "\n"+`promhttp_metric_handler_errors_total{cause="gathering"} 1`+"\n") {
		t.Errorf("%d %s", got.code, got.body)
	}
}

// Two servers in one process have metrics of their own.
func TestServersDoNotShareMetrics(t *testing.T) {
	t.Parallel()
	one, two := newServer(t, open(t)), newServer(t, open(t))
	t.Cleanup(func() { _, _ = one.Close(), two.Close() })
	one.Metrics().ObserveHop("core", relay.Served)
	one.Metrics().ObserveSwap("core", front.Succeeded)
	if got := two.Metrics().Hops(); len(got) > 0 {
		t.Errorf("the other server has counted %v", got)
	}
	two.run(t)
	two.waitReady(t)
	if body := two.admin(t).get(t, "/metrics").body; strings.Contains(body, "catena_swaps_total{") {
		t.Error("the other server shows the swap")
	}
}
