package controllers

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/client-go/tools/leaderelection"

	"github.com/catena-dev/catena/sdk"
)

// leaseGrace is how long after its end a lease may be unrenewed before the check of it fails, as in kube-controller-manager.
const leaseGrace = 20 * time.Second

// checks are the health checks of the stage: leaderElection, and one for each controller, by its name. In a process that has not the
// lease those of controllers pass, as they do for controllers that have no check of their own.
type checks struct {
	mu      sync.Mutex
	elector *leaderelection.LeaderElector
	byName  map[string]healthz.HealthChecker
}

func (c *checks) register(env *sdk.Env, controllers []string) {
	// Kubernetes has them in /healthz of a server of their own. The server is alive and ready without them.
	kinds := sdk.HealthKinds{Healthz: true}
	env.HealthCheck("leaderElection", kinds, func(context.Context) error {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.elector == nil {
			return nil
		}
		return c.elector.Check(leaseGrace)
	})
	for _, name := range controllers {
		env.HealthCheck(name, kinds, func(ctx context.Context) error { return c.check(ctx, name) })
	}
}

// follow makes the check leaderElection that of an election.
func (c *checks) follow(e *leaderelection.LeaderElector) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.elector = e
}

// AddHealthChecker adds checks of controllers that have been built.
func (c *checks) AddHealthChecker(checks ...healthz.HealthChecker) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.byName = map[string]healthz.HealthChecker{}
	for _, check := range checks {
		c.byName[check.Name()] = check
	}
}

func (c *checks) check(ctx context.Context, controller string) error {
	c.mu.Lock()
	check := c.byName[controller]
	c.mu.Unlock()
	if check == nil {
		return nil
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "/healthz", http.NoBody)
	if err != nil {
		return fmt.Errorf("check %s: %w", controller, err)
	}
	return check.Check(r)
}
