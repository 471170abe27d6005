package admin

import (
	"strings"
	"testing"
	"time"

	"github.com/catena-dev/catena/host/internal/canary"
	"github.com/catena-dev/catena/host/internal/supervisor"
)

// TestCommands shows that what an operator has asked for is kept as it could be typed again.
func TestCommands(t *testing.T) {
	for want, r := range map[string]SwapRequest{
		"swap core": {Stage: "core"},
		"swap core --rollback-on errors=5%,health --probation 1m30s": {Stage: "core", Rollback: supervisor.Rollback{ErrorRate: 0.05, Health: true, Probation: 90 * time.Second}},
		"swap core --binary /b --sha256 ab --emulate --allow a,b":    {Stage: "core", Binary: "/b", SHA256: "ab", Emulate: true, Allow: []string{"a", "b"}},
		"swap core --canary 5% --then 25%,50% --by user --for 10m0s --rollback-on refused=1%,latency=20%": {Stage: "core", Canary: &canary.Plan{
			Shares: []float64{0.05, 0.25, 0.5, 1}, For: 10 * time.Minute, By: canary.User, Limits: canary.Limits{Refused: 0.01, Latency: 0.2}}},
		"swap core --canary 5% --by client --for 1s":   {Stage: "core", Canary: &canary.Plan{Shares: []float64{0.05, 1}, For: time.Second, By: canary.Client}},
		"swap core --canary 100% --by client --for 1s": {Stage: "core", Canary: &canary.Plan{Shares: []float64{1}, For: time.Second, By: canary.Client}},
		"upgrade finalize core":                        {Stage: "core", Finalize: true},
	} {
		if got := r.command(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestCanaryInWords shows that nobody can take a canary that nobody has tried for one that does well, or the new process for the one that has all requests.
func TestCanaryInWords(t *testing.T) {
	c := &supervisor.CanaryStatus{Plan: canary.Plan{Shares: []float64{0.05, 0.25, 1}, For: time.Minute, By: canary.User}, Until: time.Now(), Waits: true}
	c.Difference.Old.Requests = 482
	s := supervisor.Status{Stage: "core", State: "serving", PID: 1, Required: true, Probation: &supervisor.Probation{From: "a", To: "b", Canary: c}}
	old := supervisor.Generation{Generation: "a"}
	for i, want := range []string{
		"core is a canary: 5% of the users go to b, the others to a; " +
			"it waits with 25% until 20 more requests have come to b",
		"5% of the users have made 0 of 482 requests (0%), of which b has failed 0 and refused 0; " +
			"to compare them, there must be 20 more",
	} {
		if got := Remarks(s); len(got) != 2 || !strings.Contains(got[i], want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if got := State(s) + ", " + Role(s, old) + ", " + Role(s, supervisor.Generation{Generation: "c"}); got != "canary 5%, old 95%, other" {
		t.Error(got)
	}
	c.Waits, c.Step, c.Difference.New.Requests, c.Difference.Latency = false, 2, 20, 0.5
	d := &c.Difference
	for _, step := range []struct {
		old, compared int64
		want          string
	}{
		{0, 0, "100% of the users have made 20 of 20 requests (100%), of which b has failed 0 and refused 0; " +
			"there is nothing to compare"},
		{482, 20, "(4%), of which b has failed 0 and refused 0; " +
			"like for like, there are +0% errors, +0% refused writes and +50% latency"},
	} {
		d.Old.Requests, d.Compared = step.old, step.compared
		got := strings.Join(Remarks(s), ", ")
		if !strings.Contains(got, "the new process stays in ") || !strings.Contains(got, step.want) {
			t.Errorf("%q, want %q", got, step.want)
		}
	}
	d.New.Requests = 30
	const some = "like for like (20, the old process has had too few of the kinds of the others), there are +0%"
	if got := strings.Join(Remarks(s), ", "); !strings.Contains(got, some) {
		t.Error(got)
	}
	if got := State(s) + ", " + Role(s, old); got != "canary 100%, kept" {
		t.Error(got)
	}
}

// TestRestartsInWords shows starts that fail.
func TestRestartsInWords(t *testing.T) {
	for want, s := range map[string]supervisor.Status{
		"3":           {State: "serving", PID: 1, Restarts: 3, Failures: 1},
		"0, 8 failed": {State: supervisor.Down, Failures: 8},
	} {
		if got := Restarts(s); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
