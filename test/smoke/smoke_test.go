// Package smoke asks of the default chain, in seconds, what every change could break.
package smoke

import (
	"context"
	"os"
	"os/exec"
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
	kubectl := kubectlFor(t, c)
	kubectl(ctx, "create", "configmap", "smoke", "--from-literal=key=value")

	before := c.Stages()
	if _, err := c.Command(ctx, "swap", "core"); err != nil {
		t.Fatal(err)
	}
	if now := c.Stages()["core"]; now == before["core"] {
		t.Error("core has the process that it had before the swap")
	}
	if got := kubectl(ctx, "get", "configmap", "smoke", "-o", "jsonpath={.data.key}"); got != "value" {
		t.Errorf("after the swap the value is %q", got)
	}

	if err := syscall.Kill(before["extensions"], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	kubectl(ctx, "get", "customresourcedefinitions")
	if now := c.Stages()["extensions"]; now == before["extensions"] {
		t.Error("extensions has the process that was killed")
	}

	stopped = true
	if err := c.Stop(t.Failed()); err != nil {
		t.Error(err)
	}
}

// kubectlFor returns a function that runs kubectl as an administrator. It has to succeed.
func kubectlFor(t *testing.T, c *cluster.Catena) func(ctx context.Context, args ...string) string {
	t.Helper()
	kubeconfig, err := c.Kubeconfig(cluster.Admin)
	if err != nil {
		t.Fatal(err)
	}
	program, err := cluster.Tool("kubectl")
	if err != nil {
		t.Fatal(err)
	}
	return func(ctx context.Context, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(ctx, program, append([]string{"--kubeconfig", kubeconfig, "--cache-dir", c.Dir + "/kubectl"}, args...)...)
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("kubectl %v: %v", args, err)
		}
		return string(out)
	}
}
