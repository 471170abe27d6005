package apistage

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/healthz"

	"github.com/catena-dev/catena/sdk"
)

// hookPoll is how often a running post-start hook is looked at. Upstream keeps
// the channel that tells its end to itself, behind a health check.
const hookPoll = 10 * time.Millisecond

// registerHooks hands the hooks of a prepared server to the host, under their
// own names. Upstream can only start all post-start hooks at once, which the
// first one that the host runs does; a hook that fails ends the process with
// its name in the last log line, as it ends kube-apiserver.
func (a *Adapter) registerHooks(server *genericapiserver.GenericAPIServer) {
	checks := map[string]healthz.HealthChecker{}
	for _, check := range server.HealthzChecks() {
		checks[check.Name()] = check
	}
	for _, name := range slices.Sorted(maps.Keys(server.PostStartHooks())) {
		done := checks["poststarthook/"+name]
		a.env.PostStartHook(name, func(ctx context.Context) error {
			a.startHooks.Do(func() { a.run(server) })
			return waitFor(ctx, done)
		})
	}
	if names := slices.Sorted(maps.Keys(server.PreShutdownHooks())); len(names) > 0 {
		// They run once, together, and their errors carry their names.
		a.env.PreShutdownHook("pre-shutdown-hooks", func(context.Context) error {
			return server.RunPreShutdownHooks()
		})
	}
}

// run starts what GenericAPIServer.RunWithContext starts besides a listener.
func (a *Adapter) run(server *genericapiserver.GenericAPIServer) {
	if debug := server.UnprotectedDebugSocket; debug != nil {
		go func() {
			if err := debug.RunWithContext(a.env.Context()); err != nil {
				a.env.Log.Error("debug socket", "error", err)
			}
		}()
	}
	server.RunPostStartHooks(a.env.Context())
}

func waitFor(ctx context.Context, check healthz.HealthChecker) error {
	if check == nil {
		return nil
	}
	tick := time.NewTicker(hookPoll)
	defer tick.Stop()
	for check.Check(nil) != nil {
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", check.Name(), context.Cause(ctx))
		case <-tick.C:
		}
	}
	return nil
}

// registerChecks hands the health checks of a prepared server to the host.
func (a *Adapter) registerChecks(server *genericapiserver.GenericAPIServer) {
	for name, on := range healthChecks(server) {
		kinds := sdk.HealthKinds{
			Readyz:  slices.Contains(on, "/readyz/"),
			Livez:   slices.Contains(on, "/livez/"),
			Healthz: slices.Contains(on, "/healthz/"),
		}
		path := on[0] + name
		a.env.HealthCheck(name, kinds, func(ctx context.Context) error {
			return runCheck(ctx, server, path)
		})
	}
}
