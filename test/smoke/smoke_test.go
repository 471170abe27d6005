// Package smoke asks of the default chain, in seconds, what every change could break.
package smoke

import (
	"context"
	"syscall"
	"testing"
	"time"

	"github.com/catena-dev/catena/test/internal/cluster"
)

// A server starts, kubectl uses it, a stage is swapped, another is killed and comes back, and nothing is left at the end.
func TestSmoke(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	c, err := cluster.StartCatena(ctx, cluster.Options{})
	if err != nil {
		t.Fatal(err)
	}
	stopped := false
	t.Cleanup(func() {
		if !stopped {
			_ = c.Stop(true)
		}
	})
	kubectl := func(args ...string) string {
		t.Helper()
		out, err := c.Kubectl(ctx, t.TempDir(), args...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	kubectl("create", "configmap", "smoke", "--from-literal=key=value")

	serving := func(stage string) int { // the process that a swap has replaced may be there still
		status, err := c.Status(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, st := range status.Stages {
			if st.Stage == stage {
				return st.PID
			}
		}
		return 0
	}
	core, extensions := serving("core"), serving("extensions")
	if _, err := c.Command(ctx, "swap", "core"); err != nil {
		t.Fatal(err)
	}
	if serving("core") == core {
		t.Error("core has the process that it had before the swap")
	}
	if got := kubectl("get", "configmap", "smoke", "-o", "jsonpath={.data.key}"); got != "value" {
		t.Errorf("after the swap the value is %q", got)
	}

	if err := syscall.Kill(extensions, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	kubectl("get", "customresourcedefinitions")
	if serving("extensions") == extensions {
		t.Error("extensions has the process that was killed")
	}

	stopped = true
	if err := c.Stop(t.Failed()); err != nil {
		t.Error(err)
	}
}
