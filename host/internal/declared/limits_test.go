package declared

import (
	"maps"
	"testing"

	"github.com/catena-dev/catena/host/internal/cgroup"
	"github.com/catena-dev/catena/host/internal/config"
	"github.com/catena-dev/catena/host/internal/process"
)

// TestLimitsOfTheKernel has them in the unit of the kernel's.
func TestLimitsOfTheKernel(t *testing.T) {
	t.Parallel()
	spec := specOf(config.Stage{Limits: config.Limits{Memory: "1Gi", CPU: "1.5", PIDs: 100}}, process.Binary{})
	if want := (cgroup.Limits{Memory: 1 << 30, CPU: 1500, PIDs: 100}); spec.KernelLimits != want {
		t.Errorf("limits are %+v, want %+v", spec.KernelLimits, want)
	}
}

// TestLimitsOfASpec gives a stage limits, and Go's garbage collector its own unless the
// operator has.
func TestLimitsOfASpec(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		stage config.Stage
		env   map[string]string
	}{
		"no limit":        {config.Stage{Env: map[string]string{"A": "b"}}, map[string]string{"A": "b"}},
		"hard limit":      {config.Stage{Limits: config.Limits{Memory: "1000M"}}, map[string]string{"GOMEMLIMIT": "720000000"}},
		"soft limit":      {config.Stage{Env: map[string]string{"A": "b"}, Limits: config.Limits{MemorySoft: "100M"}}, map[string]string{"A": "b", "GOMEMLIMIT": "90000000"}},
		"set by operator": {config.Stage{Env: map[string]string{"GOMEMLIMIT": "off"}, Limits: config.Limits{Memory: "1G"}}, map[string]string{"GOMEMLIMIT": "off"}},
	} {
		before := maps.Clone(c.stage.Env)
		spec := specOf(c.stage, process.Binary{})
		if !maps.Equal(spec.Env, c.env) {
			t.Errorf("%s: environment is %v, want %v", name, spec.Env, c.env)
		}
		if !maps.Equal(before, c.stage.Env) {
			t.Errorf("%s: the configuration's environment has become %v", name, c.stage.Env)
		}
		if spec.Limits.Memory != c.stage.Limits.MemoryBytes() || spec.Limits.MemorySoft != c.stage.Limits.MemorySoftBytes() {
			t.Errorf("%s: limits are %+v", name, spec.Limits)
		}
	}
}
