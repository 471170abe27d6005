package declared

import (
	"testing"
	"time"

	"github.com/catena-dev/catena/host/internal/canary"
	"github.com/catena-dev/catena/host/internal/config"
	"github.com/catena-dev/catena/host/internal/supervisor"
)

// A swap that is asked for one half of its rollback gets the other from the configuration.
func TestMergeRollback(t *testing.T) {
	t.Parallel()
	plain, none := load(t), load(t, "stages.core.rollbackOn=[]")
	set := load(t, "stages.core.rollbackOn=errors=5%", "stages.core.probation=7s")
	for _, c := range []struct {
		name        string
		asked, want supervisor.Rollback
		cfg         *config.Config
		canary      *canary.Plan
	}{
		{"nothing", supervisor.Rollback{}, supervisor.Rollback{}, set, nil},
		{"conditions alone", supervisor.Rollback{Health: true}, supervisor.Rollback{Health: true, Probation: 7 * time.Second}, set, nil},
		{"conditions alone, nothing configured", supervisor.Rollback{Health: true}, supervisor.Rollback{Health: true, Probation: 30 * time.Second}, plain, nil},
		{"probation alone", supervisor.Rollback{Probation: time.Second}, supervisor.Rollback{ErrorRate: 0.05, Probation: time.Second}, set, nil},
		{"probation alone, nothing configured", supervisor.Rollback{Probation: time.Second}, supervisor.Rollback{Health: true, Probation: time.Second}, plain, nil},
		{"probation alone, no conditions configured", supervisor.Rollback{Probation: time.Second}, supervisor.Rollback{Probation: time.Second}, none, nil},
		{"probation alone for a canary, nothing configured", supervisor.Rollback{Probation: time.Second}, supervisor.Rollback{Probation: time.Second}, plain, &canary.Plan{}},
		{"both", supervisor.Rollback{ErrorRate: 0.5, Probation: time.Second}, supervisor.Rollback{ErrorRate: 0.5, Probation: time.Second}, set, nil},
		{"nothing for a canary", supervisor.Rollback{}, supervisor.Rollback{ErrorRate: 0.05, Probation: 7 * time.Second}, set, &canary.Plan{}},
		{"a limit of a canary", supervisor.Rollback{}, supervisor.Rollback{}, set, &canary.Plan{Limits: canary.Limits{Latency: 1}}},
	} {
		if got := MergeRollback(c.asked, c.canary, c.cfg, "core"); got != c.want {
			t.Errorf("%s: got %+v, want %+v", c.name, got, c.want)
		}
	}
}

// What is watched after a swap that is asked for without conditions depends on what the file says.
func TestDefaultRollback(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		set  []string
		want supervisor.Rollback
	}{
		{nil, supervisor.Rollback{Health: true, Probation: 10 * time.Second}},
		{[]string{"stages.core.probation=3s"}, supervisor.Rollback{Health: true, Probation: 3 * time.Second}},
		{[]string{"stages.core.rollbackOn=[]"}, supervisor.Rollback{}},
		{[]string{"stages.core.rollbackOn=errors=5%"}, supervisor.Rollback{}}, // it is the stage's own
	} {
		if got := DefaultRollback(load(t, c.set...), "core"); got != c.want {
			t.Errorf("%q: got %+v, want %+v", c.set, got, c.want)
		}
	}
}

// load returns the configuration of a chain of core alone.
func load(t *testing.T, set ...string) *config.Config {
	t.Helper()
	cfg, err := config.Load(config.Options{Set: append([]string{"stages.core={}"}, set...)})
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}
