package supervisor

import (
	"reflect"
	"testing"
	"time"

	"github.com/catena-dev/catena/sdk/stagev1"
)

// TestFieldsOfASpec has each field either need another process, or be taken over without.
func TestFieldsOfASpec(t *testing.T) {
	t.Parallel()
	all := reflect.ValueOf(Spec{
		Name: "x", Binary: "x", SHA256: "x", Attach: "x", Digest: "x", Config: map[string]any{"x": 1}, Env: map[string]string{"x": "y"},
		User: "x", Groups: []string{"x"}, StartTimeout: 1, LivenessTimeout: 1, DrainTimeout: 1, DrainSpread: 1, Required: true,
		LastClaims: []*stagev1.Claim{{}}, Standby: true, Rollback: Rollback{Probation: time.Second},
	})
	for i := range all.NumField() {
		name := all.Type().Field(i).Name
		if name == "Name" {
			continue // another name is another stage
		}
		if all.Field(i).IsZero() {
			t.Fatalf("the test does not set %s", name)
		}
		var with Spec
		reflect.ValueOf(&with).Elem().Field(i).Set(all.Field(i))
		process := !sameProcess(Spec{}, with)
		taken := !reflect.ValueOf(Spec{}.treatedAs(with)).Field(i).IsZero()
		kept := !reflect.ValueOf(with.treatedAs(Spec{})).Field(i).IsZero()
		if process == taken || taken == kept {
			t.Errorf("%s needs a process: %t, is taken over: %t, is kept: %t", name, process, taken, kept)
		}
	}
}
