package server

import (
	"context"
	"fmt"
	"strings"

	"github.com/catena-dev/catena/host/internal/front"
	"github.com/catena-dev/catena/host/internal/supervisor"
)

// checks are the health checks of the stages that are in the chain at the time.
func (r *run) checks() []front.Check {
	all := append(servingChecks(r.stages.Status()), withEtcd(r.stages.Checks())...)
	checks := make([]front.Check, len(all))
	for i, c := range all {
		checks[i] = front.Check(c)
	}
	return checks
}

// servingChecks are a check for each stage, STAGE/serving, which fails when requests to it
// are refused: a stage need not have checks of its own.
func servingChecks(stages []supervisor.Status) []supervisor.Check {
	var checks []supervisor.Check
	for _, st := range stages {
		checks = append(checks, supervisor.Check{
			Name: st.Stage + "/serving", Readyz: true, Required: st.Required,
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

// withEtcd adds the check "etcd", which monitoring of kube-apiserver asks for. It
// passes if the checks of that name of all stages do.
func withEtcd(checks []supervisor.Check) []supervisor.Check {
	var etcd []supervisor.Check
	for _, c := range checks {
		if c.Required && strings.HasSuffix(c.Name, "/etcd") {
			etcd = append(etcd, c)
		}
	}
	if len(etcd) == 0 {
		return checks
	}
	return append(checks, supervisor.Check{Name: "etcd", Healthz: true, Livez: true, Readyz: true, Required: true,
		Run: func(ctx context.Context) error {
			for _, c := range etcd {
				if err := c.Run(ctx); err != nil {
					return fmt.Errorf("%s: %w", c.Name, err)
				}
			}
			return nil
		}})
}
