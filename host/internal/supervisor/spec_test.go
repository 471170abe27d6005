package supervisor

import (
	"reflect"
	"testing"

	"github.com/catena-dev/catena/host/internal/cgroup"
	"github.com/catena-dev/catena/host/internal/grants"
	"github.com/catena-dev/catena/host/internal/isolation"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// TestFieldsOfASpec has each field of a Process need another process, and each of a Policy
// be taken over without.
func TestFieldsOfASpec(t *testing.T) {
	t.Parallel()
	all := Spec{
		Process{
			Name: "x", Binary: "x", SHA256: "x", Attach: "x", Digest: "x", Config: map[string]any{"x": 1}, Flags: map[string][]string{"x": {"y"}},
			Env: map[string]string{"x": "y"}, OpenFiles: 1, KernelLimits: cgroup.Limits{CPU: 1}, User: "x", Groups: []string{"x"}, Grants: grants.All(), Isolation: isolation.Spec{Mode: isolation.Auto}, ReadOnly: true,
		},
		Policy{StartTimeout: 1, LivenessTimeout: 1, DrainTimeout: 1, DrainSpread: 1, Required: true, LastClaims: []*stagev1.Claim{{}}, Standby: true, Limits: Limits{Memory: 1}, Rollback: Rollback{Health: true}},
	}
	process := reflect.ValueOf(all.Process)
	for i := range process.NumField() {
		var with Process
		reflect.ValueOf(&with).Elem().Field(i).Set(process.Field(i))
		if with.Equal(Process{}) || !with.Equal(with.Clone()) {
			t.Errorf("%s needs no other process", process.Type().Field(i).Name)
		}
	}
	st := stage{}
	st.guarded.adopt(all)
	if !reflect.DeepEqual(st.guarded.spec.Policy, all.Policy) || !st.guarded.spec.Process.Equal(Process{}) {
		t.Errorf("adopted %+v", st.guarded.spec)
	}
	empty := Process{Config: map[string]any{}, Flags: map[string][]string{}, Env: map[string]string{}, Groups: []string{}}
	if !empty.Equal(Process{}) {
		t.Error("what is empty needs another process")
	}
}
