package system

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/catena-dev/catena/test/internal/cluster"
)

// An isolated stage serves, is swapped and started again as any other, and status and metrics say
// what isolates it; a stage beside it is not isolated.
func TestIsolatedStage(t *testing.T) {
	t.Parallel()
	c := smallCatena(t, `apiVersion: catena.dev/v1alpha1
kind: HostConfiguration
stages:
  inside: {lock: off, delegate: outside, grants: {claims: ["/**"]}}
  outside: {lock: off, isolation: off, grants: {claims: ["/**"]}}
`, nil, "inside", "outside")
	config := c.Config(cluster.Bob)
	serve := func(when string) {
		t.Helper()
		for _, name := range []string{"inside", "outside"} {
			eventually(t, name+" serves "+when, func() bool {
				return do(t, config, http.MethodGet, "/stage/"+name, "").code == http.StatusOK
			})
		}
		// With a namespace for files come all others.
		if by := isolatedBy(t, c); !slices.Contains(by["inside"], "mnt") || len(by["outside"]) > 0 {
			t.Errorf("isolated %s by %v", when, by)
		}
	}
	serve("after the start")
	if out, err := c.Command(t.Context(), "swap", "inside"); err != nil {
		t.Fatalf("swap: %v\n%s", err, out)
	}
	serve("after a swap")
	before := c.Stages()["inside"]
	if err := syscall.Kill(before, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "another process has its place", func() bool { pid := c.Stages()["inside"]; return pid != 0 && pid != before })
	serve("after its process has died")
	metrics := do(t, c.Config(cluster.Admin), http.MethodGet, "/metrics", "").body
	if !strings.Contains(metrics, `catena_stage_isolated{means="mnt",stage="inside"} 1`) || strings.Contains(metrics, `catena_stage_isolated{means="mnt",stage="outside"}`) {
		t.Error("the metrics do not say what isolates the stages")
	}
}

// isolatedBy returns what isolates each stage.
func isolatedBy(t *testing.T, c *cluster.Catena) map[string][]string {
	t.Helper()
	out, err := c.Command(t.Context(), "status", "-o", "json")
	if err != nil {
		t.Fatalf("status: %v\n%s", err, out)
	}
	var status struct {
		Stages []struct {
			Stage     string
			Isolation []string
		}
	}
	if err := json.Unmarshal([]byte(out), &status); err != nil {
		t.Fatal(err)
	}
	by := map[string][]string{}
	for _, s := range status.Stages {
		by[s.Stage] = s.Isolation
	}
	return by
}
