package front_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/catena-dev/catena/host/internal/front"
)

// Not in parallel: the registry of metrics is one per process.
func TestMetricsOfStages(t *testing.T) {
	var stages atomic.Pointer[[]front.StageState]
	stages.Store(&[]front.StageState{{Stage: "core", State: "serving", Restarts: 2}, {Stage: "gone", State: "down"}})
	front.SetSupervision(front.Supervision{
		States: []string{"serving", "down"},
		Stages: func() []front.StageState { return *stages.Load() },
		Held:   func() int64 { return 7 },
	})
	fresh := fmt.Sprint("s", time.Now().UnixNano()) // counters count on if the test is run twice
	front.ObserveStart(fresh, 300*time.Millisecond)
	front.ObserveSwap(fresh, front.RolledBack)
	front.ObserveReload(front.Succeeded, time.Unix(1234, 0))
	front.ObserveReload(front.Failed, time.Unix(5678, 0))
	s := start(t, open(t), func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "") })
	admin := s.admin(t)
	a := admin.get(t, "/metrics")
	for _, want := range []string{
		`catena_stage_state{stage="core",state="serving"} 1`, `catena_stage_state{stage="core",state="down"} 0`,
		`catena_stage_state{stage="gone",state="down"} 1`,
		`catena_stage_restarts_total{stage="core"} 2`,
		`catena_held_requests 7`,
		`catena_swaps_total{result="rollback",stage="` + fresh + `"} 1`,
		`catena_stage_start_duration_seconds_bucket{stage="` + fresh + `",le="0.5"} 1`,
		`catena_config_last_reload_success_timestamp_seconds 1234`,
	} {
		if !strings.Contains(a.body, "\n"+want+"\n") {
			t.Errorf("no %s", want)
		}
	}
	for _, result := range []string{"success", "failure"} {
		if !strings.Contains(a.body, `catena_config_reloads_total{result="`+result+`"} `) {
			t.Errorf("no reloads with result %s", result)
		}
	}
	stages.Store(&[]front.StageState{{Stage: "core", State: "serving"}})
	if a := admin.get(t, "/metrics"); strings.Contains(a.body, `stage="gone"`) {
		t.Error("a stage that is no longer in the chain is in the metrics")
	}
}
