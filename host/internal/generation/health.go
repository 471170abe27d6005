package generation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/catena-dev/catena/host/internal/guard"
	"github.com/catena-dev/catena/host/internal/panics"
	"github.com/catena-dev/catena/sdk/stagev1"
)

const (
	// CheckTimeout bounds one round of a stage's health checks.
	CheckTimeout = 2 * time.Second
	// checkFresh is how long the results of a round are reused: an endpoint such
	// as /readyz asks for each check by itself, the stage is asked once.
	checkFresh = 100 * time.Millisecond
	// maxLate is how many rounds a stage that is coming up may fail to respond to: it has to report a check that takes
	// too long as failed, and respond.
	maxLate = 3
	// readyPoll is how often AwaitReady asks.
	readyPoll = 50 * time.Millisecond
)

// healthCache holds the latest round of health checks.
type healthCache struct {
	mu     sync.Mutex
	latest *healthRound
	// late counts the rounds in a row to which the stage has not responded in time.
	late int
}

// healthRound is one round of all checks. What it found is there when done is closed.
type healthRound struct {
	done    chan struct{}
	at      time.Time
	results map[string]error
	err     error
}

// round returns the latest round, or a new one, which check makes, if that is too old.
func (c *healthCache) round(check func() (map[string]error, error)) *healthRound {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.latest; r != nil && !r.isOld() {
		return r
	}
	r := &healthRound{done: make(chan struct{})}
	c.latest = r
	go func() {
		defer close(r.done)
		r.err = panics.Call(func() (err error) {
			r.results, err = check()
			return err
		})
		r.at = time.Now()
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.late++; status.Code(r.err) != codes.DeadlineExceeded {
			c.late = 0
		}
	}()
	return r
}

func (r *healthRound) isOld() bool {
	select {
	case <-r.done:
		return time.Since(r.at) > checkFresh
	default:
		return false
	}
}

func (c *healthCache) tooLate() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.late >= maxLate
}

// HealthChecks are those that the stage has.
func (g *Generation) HealthChecks() []*stagev1.HealthCheck { return g.prepared.GetHealthChecks() }

// CheckHealth returns the result of one health check. It is that of a round of all checks
// which is at most a tenth of a second old; callers that come while a round runs share it.
// It is an error if the stage does not respond in time, or before ctx ends.
func (g *Generation) CheckHealth(ctx context.Context, name string) error {
	r := g.health.round(func() (map[string]error, error) { return g.checkAll(ctx) })
	select {
	case <-r.done:
	case <-ctx.Done():
		return fmt.Errorf("the checks of stage %q have not come back yet: %w", g.Name(), context.Cause(ctx))
	}
	if r.err != nil {
		return r.err
	}
	return r.results[name] // nil if it is there no more: a later generation need not have it
}

func (g *Generation) checkAll(ctx context.Context) (map[string]error, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), CheckTimeout)
	defer cancel()
	resp, err := g.process.Client().CheckHealth(ctx, &stagev1.CheckHealthRequest{})
	if status.Code(err) == codes.DeadlineExceeded {
		return nil, fmt.Errorf("the checks of stage %q did not come back in time: %w", g.Name(), err)
	}
	if err != nil {
		return nil, err
	}
	results := make(map[string]error, len(g.checks))
	for _, r := range resp.GetResults() {
		if r.GetError() != "" && g.checks[r.GetName()] {
			results[r.GetName()] = errors.New(r.GetError())
		}
	}
	return results, nil
}

// Healthy returns the error of the first check of readiness or liveness that fails.
func (g *Generation) Healthy(ctx context.Context) error {
	for _, c := range g.HealthChecks() {
		if !c.GetReadyz() && !c.GetLivez() {
			continue
		}
		if err := g.CheckHealth(ctx, c.GetName()); err != nil {
			return fmt.Errorf("check %q of stage %q fails: %w", c.GetName(), g.Name(), err)
		}
	}
	return nil
}

// AwaitReady waits until the post-start hooks, which the caller runs, have returned, all
// signals have come and all readiness checks pass; or for an error from failed.
func (g *Generation) AwaitReady(ctx context.Context, failed <-chan error) error {
	ctx, cancel := context.WithTimeout(ctx, g.startTimeout)
	defer cancel()
	var cause error // why it was not ready, when that was last seen
	for {
		unready := g.unready(ctx)
		if unready == nil {
			return nil
		}
		if cause == nil || ctx.Err() == nil { // a round that ctx cuts off says nothing
			cause = unready
		}
		if g.health.tooLate() {
			return fmt.Errorf("stage %q: CheckHealth has not returned before its deadline of %s, %d times in a row: a check that takes longer has to be reported as failed", g.Name(), CheckTimeout, maxLate)
		}
		select {
		case err := <-failed:
			return err
		case <-g.Done():
			return g.Err()
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return fmt.Errorf("stage %q: the new generation did not become ready within its startTimeout of %s (stages.%s.startTimeout): %w",
					g.Name(), g.startTimeout, g.Name(), cause)
			}
			return fmt.Errorf("stage %q: the new generation was not waited for: %w", g.Name(), context.Cause(ctx))
		case <-time.After(readyPoll):
		}
	}
}

// unready says what a generation is still waiting for, nil if nothing.
func (g *Generation) unready(ctx context.Context) error {
	g.mu.Lock()
	pending := make([]string, 0, len(g.pending))
	for name := range g.pending {
		pending = append(pending, name)
	}
	g.mu.Unlock()
	if len(pending) > 0 {
		return fmt.Errorf("signal %q has not come", slices.Min(pending))
	}
	for _, name := range g.PostStartHooks() {
		if err := g.PostStartHook(name); err != nil {
			return fmt.Errorf("post-start hook %q: %w", name, err)
		}
	}
	for _, c := range g.HealthChecks() {
		if !c.GetReadyz() {
			continue
		}
		if err := g.CheckHealth(ctx, c.GetName()); err != nil {
			return fmt.Errorf("readiness check %q: %w", c.GetName(), err)
		}
	}
	return nil
}

// StuckError is a health check of /livez that has not come back for longer than any
// caller gives it.
type StuckError struct {
	Check string
	Since time.Time
}

func (e *StuckError) Error() string {
	return fmt.Sprintf("health check %q has not come back for %s", e.Check, time.Since(e.Since).Round(time.Millisecond))
}

// Responds returns an error if the process does not respond to calls before ctx ends.
func (g *Generation) Responds(ctx context.Context) error {
	_, err := g.process.Client().Describe(ctx, &stagev1.DescribeRequest{})
	if code := status.Code(err); code == codes.DeadlineExceeded || code == codes.Unavailable {
		return err
	}
	return nil
}

// Alive returns an error if a serving process gives no sign of life before ctx ends: it
// does not respond to calls, its data socket's backlog is full, or, as a *StuckError, one of
// its checks of /livez does not come back. That a check fails is a sign of life: what the
// stage needs may be away, and a restart would not bring it back.
func (g *Generation) Alive(ctx context.Context) error {
	c, err := guard.Dial(ctx, g.listener.Path())
	if err != nil {
		return err
	}
	_ = c.Close()
	var names []string
	for _, c := range g.HealthChecks() {
		if c.GetLivez() {
			names = append(names, c.GetName())
		}
	}
	if len(names) == 0 {
		return g.Responds(ctx)
	}
	return g.stuck(ctx, names)
}

// stuck returns an error if the process does not respond, or if one of the checks does not come back.
func (g *Generation) stuck(ctx context.Context, names []string) error {
	resp, err := g.process.Client().CheckHealth(ctx, &stagev1.CheckHealthRequest{Names: names})
	if code := status.Code(err); code == codes.DeadlineExceeded || code == codes.Unavailable {
		return err
	}
	for _, r := range resp.GetResults() {
		if running := r.GetRunning().AsDuration(); running > CheckTimeout && slices.Contains(names, r.GetName()) {
			return &StuckError{r.GetName(), time.Now().Add(-running)}
		}
	}
	return nil
}
