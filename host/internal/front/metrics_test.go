package front_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

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
		Held:   func() int64 { return 7 },
		Faults: func() []front.FaultState { return []front.FaultState{{Kind: "release-changed", Stage: "core"}} },
	})
	m.ObserveHop("core", relay.Served)
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
		`catena_held_requests 7`, `catena_fault{kind="release-changed",stage="core"} 1`,
		`catena_relay_hops_total{outcome="served",stage="core"} 1`,
		`catena_swaps_total{result="rollback",stage="core"} 1`,
		`catena_stage_start_duration_seconds_bucket{stage="core",le="0.5"} 1`,
		`catena_config_reloads_total{result="success"} 1`,
		`catena_config_reloads_total{result="failure"} 1`,
		`catena_config_last_reload_success_timestamp_seconds 1234`,
		`# HELP catena_swaps_total [ALPHA] Swaps of a stage by how they ended: success, failure (the old process stayed) or rollback. A swap that is refused because another change is under way does not count.`,
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
