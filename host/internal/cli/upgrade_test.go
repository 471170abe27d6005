package cli

import (
	"errors"
	"strings"
	"testing"

	"github.com/catena-dev/catena/host/internal/upgrade"
)

// The exit code of a plan is for scripts, and what is printed tells what is in the way.
func TestUpgradePlan(t *testing.T) {
	t.Parallel()
	h, data := startFakeHost(t)
	for _, c := range []struct {
		findings []upgrade.Finding
		code     int
		want     string
	}{
		{nil, 0, "core: v1.36.3 → v1.37.0; 7 objects in the store, 5 compared\nnothing is in the way\n"},
		{[]upgrade.Finding{
			{Topic: upgrade.Removed, Name: "x.y/v1", Detail: "is in use", Blocks: true, Clients: []upgrade.Client{{UserAgent: "kubectl/v1", Requests: 3}}},
			{Topic: upgrade.Added, Name: "z.y/v1", Detail: "get"},
		}, 2, "core: v1.36.3 → v1.37.0; 7 objects in the store, 5 compared\n! removed: x.y/v1: is in use\n    kubectl/v1: 3 requests\n  added: z.y/v1: get\n1 findings (!) are in the way\n"},
	} {
		h.plan = &upgrade.Plan{Stage: "core", From: "v1.36.3", To: "v1.37.0", Objects: 7, Compared: 5, Findings: c.findings}
		out, _, err := run(t, "upgrade", "plan", "core", "--binary", "new", "--data-dir", data)
		var code exitCode
		errors.As(err, &code)
		if out != c.want || int(code) != c.code || err != nil && c.code == 0 {
			t.Errorf("exit code %d (%v), printed %q, want %q", code, err, out, c.want)
		}
	}
	for want, args := range map[string][]string{
		"--binary is required": {"core"}, "--sample 0": {"core", "--binary", "x", "--sample", "0"}, "--timeout -1s": {"core", "--binary", "x", "--timeout", "-1s"},
		"the name of a stage": {"--binary", "x"},
	} {
		if _, _, err := run(t, append([]string{"upgrade", "plan", "--data-dir", data}, args...)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", args, err, want)
		}
	}
}
