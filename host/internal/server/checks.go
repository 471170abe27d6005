package server

import (
	"context"
	"fmt"
	"slices"

	"github.com/catena-dev/catena/host/internal/front"
	"github.com/catena-dev/catena/host/internal/lifecycle"
	"github.com/catena-dev/catena/host/internal/supervisor"
)

// checks are the health checks of the stages that are in the chain at the time.
func checks(stages *supervisor.Supervisor) []lifecycle.Check {
	return slices.Concat(servingChecks(stages.Status()), withServerChecks(stages.Checks()))
}

// servingChecks are a check for each stage, STAGE/serving, which fails when requests to it
// are refused: a stage need not have checks of its own.
func servingChecks(stages []supervisor.Status) []lifecycle.Check {
	var checks []lifecycle.Check
	for _, st := range stages {
		checks = append(checks, lifecycle.Check{
			Name: st.Stage + "/serving", Readyz: true, Required: st.Required, OfServer: true,
			Run: func(context.Context) error {
				if st.State == supervisor.Down {
					return fmt.Errorf("stage %q is down: %s", st.Stage, st.Failure)
				}
				return nil
			},
		})
	}
	return checks
}

// withServerChecks adds the checks that stages have for the whole server, such as "etcd",
// which monitoring of kube-apiserver asks for. Each passes if those of all required stages
// pass.
func withServerChecks(checks []lifecycle.Check) []lifecycle.Check {
	all := slices.Clone(checks)
	parts := map[string][]lifecycle.Check{}
	for _, c := range checks {
		if c.ServerCheck == "" || !c.Required {
			continue
		}
		if parts[c.ServerCheck] == nil {
			all = append(all, lifecycle.Check{Name: c.ServerCheck, Required: true, Run: func(ctx context.Context) error {
				return front.RunChecks(ctx, parts[c.ServerCheck])
			}})
		}
		parts[c.ServerCheck] = append(parts[c.ServerCheck], c)
	}
	for i := range all[len(checks):] {
		c := &all[len(checks)+i]
		for _, part := range parts[c.Name] {
			c.Healthz, c.Livez, c.Readyz = c.Healthz || part.Healthz, c.Livez || part.Livez, c.Readyz || part.Readyz
		}
	}
	return all
}
