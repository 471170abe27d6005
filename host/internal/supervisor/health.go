package supervisor

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/catena-dev/catena/host/internal/lifecycle"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// Check is a health check of a stage. It runs on the stage's current generation.
type Check = lifecycle.Check

const (
	// checkTimeout bounds one round of a stage's health checks.
	checkTimeout = 2 * time.Second
	// checkFresh is how long the results of a round are reused: an endpoint such
	// as /readyz asks for each check by itself, the stage is asked once.
	checkFresh = 100 * time.Millisecond
)

// hookStates keeps which post-start hooks of a generation have returned.
type hookStates struct {
	mu      sync.Mutex
	pending map[string]error
}

var errHookRunning = errors.New("not finished")

func (h *hookStates) expect(names []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pending = make(map[string]error, len(names))
	for _, name := range names {
		h.pending[name] = errHookRunning
	}
}

func (h *hookStates) finished(name string, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pending[name] = err
}

func (h *hookStates) check(name string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.pending[name]
}

// healthCache holds the latest round of a generation's health checks.
type healthCache struct {
	mu      sync.Mutex
	at      time.Time
	results map[string]error
	err     error
}

// check returns the result of one check, from a round that is at most checkFresh
// old. Callers that come while a round runs wait for it and share it.
func (g *generation) check(ctx context.Context, name string) error {
	c := &g.health
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.at) > checkFresh {
		c.results, c.err = g.checkAll(ctx)
		c.at = time.Now()
	}
	if c.err != nil {
		return c.err
	}
	return c.results[name] // nil if it is there no more: a later generation need not have it
}

func (g *generation) checkAll(ctx context.Context) (map[string]error, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), checkTimeout)
	defer cancel()
	resp, err := g.proc.Client().CheckHealth(ctx, &stagev1.CheckHealthRequest{})
	if status.Code(err) == codes.DeadlineExceeded {
		return nil, fmt.Errorf("the checks of stage %q did not come back in time: %w", g.Name(), err)
	}
	if err != nil {
		return nil, err
	}
	results := make(map[string]error, len(resp.GetResults()))
	for _, r := range resp.GetResults() {
		results[r.GetName()] = nil
		if r.GetError() != "" {
			results[r.GetName()] = errors.New(r.GetError())
		}
	}
	return results, nil
}

// Checks returns the health checks of all stages of the chain as it is now: those that
// the stages report, for each post-start hook, whether it has returned, and, for a stage
// that has not come up, that it has not. It is to be called when Start has returned.
func (s *Supervisor) Checks() []Check {
	var checks []Check
	for _, st := range s.chain() {
		required := st.present().Required
		g := st.generation()
		if g == nil {
			checks = append(checks, Check{
				Name: st.name + "/running", Healthz: true, Livez: true, Readyz: true, Required: required,
				Run: func(context.Context) error { return st.running() },
			})
			continue
		}
		hooks := map[string]bool{}
		for _, hook := range g.prepared.GetPostStartHooks() {
			name := "poststarthook/" + hook
			hooks[name] = true
			checks = append(checks, Check{
				Name: st.name + "/" + name, Healthz: true, Livez: true, Readyz: true, Boot: true, Required: required,
				Run: func(context.Context) error { return st.generation().hooks.check(hook) },
			})
		}
		for _, c := range g.prepared.GetHealthChecks() {
			if hooks[c.GetName()] {
				continue
			}
			checks = append(checks, Check{
				Name: st.name + "/" + c.GetName(), Healthz: c.GetHealthz(), Livez: c.GetLivez(), Readyz: c.GetReadyz(), Required: required,
				Boot: c.GetName() == "autoregister-completion", // the one that upstream has besides hooks
				Run:  func(ctx context.Context) error { return st.check(ctx, c.GetName()) },
			})
		}
	}
	return checks
}

// running returns why the stage has not come up, nil if it has.
func (s *stage) running() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current != nil {
		return nil
	}
	return fmt.Errorf("stage %q has not come up: %s", s.name, s.failure)
}

// check runs a health check on the current generation, if that serves.
func (s *stage) check(ctx context.Context, name string) error {
	g := s.generation()
	if state := g.machine.State(); state != lifecycle.Serving && state != lifecycle.Draining {
		return fmt.Errorf("stage %q is %s", s.name, state)
	}
	return g.check(ctx, name)
}
