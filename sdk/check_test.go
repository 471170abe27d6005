package sdk

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/catena-dev/catena/sdk/stagev1"
)

// A check that hangs is not started again by each caller, holds no other check up, and
// counts again once it has come back.
func TestCheckHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		env := newEnv(t.Context(), &stagev1.ConfigureRequest{Name: "test"}, hclog.NewNullLogger(), newDrain())
		var runs atomic.Int64
		hang := make(chan struct{})
		env.HealthCheck("hangs", HealthKinds{}, func(context.Context) error {
			runs.Add(1)
			<-hang
			return nil
		})
		env.HealthCheck("well", HealthKinds{}, func(context.Context) error { return nil })
		check := func() (hangs, well string) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			results := env.checkHealth(ctx, nil)
			return results[0].GetError(), results[1].GetError()
		}
		for range 5 {
			if hangs, well := check(); !strings.Contains(hangs, "did not come back in time") || well != "" {
				t.Errorf("%q, %q", hangs, well)
			}
		}
		if n := runs.Load(); n != 1 {
			t.Errorf("the check was started %d times", n)
		}
		close(hang)
		synctest.Wait()
		if hangs, _ := check(); hangs != "" || runs.Load() != 2 {
			t.Errorf("%q, %d runs", hangs, runs.Load())
		}
	})
}
