package sdk

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/catena-dev/catena/sdk/stagev1"
)

// HealthKinds are the endpoints that a health check is part of; none means all three.
// The other fields say what the host makes of the check.
type HealthKinds struct {
	// Livez: the server is not alive if the check fails. A check that does not return
	// for the stage's livenessTimeout, whatever its context says, means that the process
	// is deadlocked: it is killed and started again.
	Livez bool
	// Readyz: no requests should be sent if the check fails.
	Readyz bool
	// Healthz is the deprecated endpoint of Kubernetes.
	Healthz bool

	// Startup: the check fails while the stage starts. /livez passes over it for the
	// server's livez grace period.
	Startup bool
	// ServerCheck names a check that the host shows for the whole server, such as etcd.
	// It passes if the checks with this ServerCheck of all required stages pass. Empty
	// for a check that is only the stage's own. It counts for stages that are granted the store's registry, or keys.
	ServerCheck string
	// Group names a group: who excludes it from an endpoint of health excludes the check too, as etcd-override-0
	// with etcd in kube-apiserver. It counts as ServerCheck does.
	Group string
}

// HealthCheck registers a check, which the host shows as STAGE/NAME. It runs whenever the
// endpoint is requested, never twice at a time, and should return well before its context
// ends, or it counts as failed.
func (e *Env) HealthCheck(name string, kinds HealthKinds, f func(context.Context) error) {
	e.register("HealthCheck "+name, func() error { return e.checks.add(name, kinds, f) })
}

// checks are a stage's health checks.
type checks struct{ byName map[string]*check }

func (c *checks) add(name string, kinds HealthKinds, f func(context.Context) error) error {
	switch {
	case name == "":
		return errors.New("without a name")
	case f == nil:
		return errors.New("without a function")
	case c.byName[name] != nil:
		return errors.New("registered twice")
	}
	if c.byName == nil {
		c.byName = map[string]*check{}
	}
	if !kinds.Livez && !kinds.Readyz && !kinds.Healthz {
		kinds.Livez, kinds.Readyz, kinds.Healthz = true, true, true
	}
	c.byName[name] = &check{name: name, kinds: kinds, run: f}
	return nil
}

func (c *checks) toWire() []*stagev1.HealthCheck {
	var wire []*stagev1.HealthCheck
	for _, name := range slices.Sorted(maps.Keys(c.byName)) {
		k := c.byName[name].kinds
		wire = append(wire, &stagev1.HealthCheck{
			Name: name, Livez: k.Livez, Readyz: k.Readyz, Healthz: k.Healthz,
			Startup: k.Startup, ServerCheck: k.ServerCheck, Group: k.Group,
		})
	}
	return wire
}

// checkHealth runs the checks with these names, or all, at the same time.
func (e *Env) checkHealth(ctx context.Context, names []string) []*stagev1.HealthResult {
	e.mu.Lock()
	known := maps.Clone(e.checks.byName)
	e.mu.Unlock()
	if len(names) == 0 {
		names = slices.Sorted(maps.Keys(known))
	}
	results := make([]*stagev1.HealthResult, len(names))
	var all sync.WaitGroup
	for i, name := range names {
		all.Go(func() {
			running, err := known[name].result(ctx, e)
			results[i] = &stagev1.HealthResult{Name: name, CheckedAt: timestamppb.Now()}
			if err != nil {
				results[i].Error = err.Error()
			}
			if running > 0 {
				results[i].Running = durationpb.New(running)
			}
		})
	}
	all.Wait()
	return results
}

// check is one health check.
type check struct {
	name  string
	kinds HealthKinds
	run   func(context.Context) error

	mu      sync.Mutex
	running *checkRun
}

// checkRun is a check under way, shared by all callers that wait for it.
type checkRun struct {
	began time.Time
	done  chan struct{}
	err   error // valid when done is closed
}

// result returns the check's error. For a check that has not returned when ctx ends, it
// also returns how long the check has been running.
func (c *check) result(ctx context.Context, e *Env) (running time.Duration, err error) {
	if c == nil {
		return 0, errors.New("there is no such health check")
	}
	run := c.join(ctx, e)
	select {
	case <-run.done:
		return 0, run.err
	case <-ctx.Done():
		return time.Since(run.began), fmt.Errorf("the check did not come back in time: %w", ctx.Err())
	}
}

// join starts the check if it is not running already. A check that never returns is thus
// not started again and again.
func (c *check) join(ctx context.Context, e *Env) *checkRun {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running != nil {
		return c.running
	}
	run := &checkRun{began: time.Now(), done: make(chan struct{})}
	c.running = run
	own, cancel := checkContext(ctx, e.ctx)
	go func() {
		defer cancel()
		run.err = guard(e.Log, "health check "+c.name, func() error { return c.run(own) })
		c.mu.Lock()
		c.running = nil
		c.mu.Unlock()
		close(run.done)
	}()
	return run
}

// defaultCheckTimeout bounds a check whose caller sets no deadline.
const defaultCheckTimeout = 10 * time.Second

// checkContext returns the stage's context with the caller's deadline: other callers may
// wait for the check even if the first one gives up.
func checkContext(caller, stage context.Context) (context.Context, context.CancelFunc) {
	if deadline, ok := caller.Deadline(); ok {
		return context.WithDeadline(stage, deadline)
	}
	return context.WithTimeout(stage, defaultCheckTimeout)
}
