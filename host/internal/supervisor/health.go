package supervisor

import (
	"context"
	"fmt"
	"io"

	"github.com/catena-dev/catena/host/internal/generation"
	"github.com/catena-dev/catena/host/internal/lifecycle"
)

// Check is a health check of a stage. It runs on the stage's current generation.
type Check = lifecycle.Check

// Checks returns the health checks of all stages of the chain as it is now: those that
// the stages report, for each post-start hook, whether it has returned, and, for a stage
// that has not come up, that it has not. It is to be called when Start has returned.
func (s *Supervisor) Checks() []Check {
	held := s.lock()
	defer held.unlock()
	var checks []Check
	for _, st := range held.chain {
		checks = append(checks, st.checks(held)...)
	}
	return checks
}

// checks are those of one stage. One that is not trusted as the server is speaks for itself alone.
func (s *stage) checks(held *locked) []Check {
	required, g := s.guarded.spec.Required, held.main(s)
	if g == nil {
		return []Check{{
			Name: s.name + "/running", Healthz: true, Livez: true, Readyz: true, Required: required, OfServer: true,
			Run: func(context.Context) error { return s.hasComeUp() },
		}}
	}
	var checks []Check
	ofServer := g.Spec().Grants.Trusted()
	hooks := map[string]bool{}
	for _, hook := range g.PostStartHooks() {
		name := "poststarthook/" + hook
		hooks[name] = true
		checks = append(checks, Check{
			Name: s.name + "/" + name, Healthz: true, Livez: true, Readyz: true, Boot: true, Required: required, OfServer: ofServer,
			Run: func(context.Context) error { return s.postStartHook(hook) },
		})
	}
	for _, c := range g.HealthChecks() {
		if hooks[c.GetName()] {
			continue
		}
		serverCheck, group := "", ""
		if ofServer {
			serverCheck, group = c.GetServerCheck(), c.GetGroup()
		}
		checks = append(checks, Check{
			Name: s.name + "/" + c.GetName(), Healthz: c.GetHealthz(), Livez: c.GetLivez(), Readyz: c.GetReadyz(), Required: required,
			Boot: c.GetStartup(), OfServer: ofServer, ServerCheck: serverCheck, Group: group,
			Run: func(ctx context.Context) error {
				g, err := s.serving()
				if err != nil {
					return err
				}
				return g.CheckHealth(ctx, c.GetName())
			},
		})
	}
	return checks
}

// hasComeUp returns why the stage has not come up, nil if it has.
func (s *stage) hasComeUp() error {
	held := s.of.lock()
	defer held.unlock()
	if s.guarded.current() != nil {
		return nil
	}
	return fmt.Errorf("stage %q has not come up: %s", s.name, s.guarded.failure)
}

func (s *stage) postStartHook(name string) error {
	held := s.of.lock()
	g := held.main(s)
	held.unlock()
	if g == nil {
		return fmt.Errorf("stage %q is not running", s.name)
	}
	return g.PostStartHook(name)
}

// serving returns the generation of a stage that serves, or why it has none.
func (s *stage) serving() (*generation.Generation, error) {
	held := s.of.lock()
	defer held.unlock()
	g := held.main(s)
	if g == nil {
		return nil, fmt.Errorf("stage %q is not running", s.name)
	}
	if state := s.guarded.machine.State(g.ID()); state != lifecycle.Serving && state != lifecycle.Draining {
		return nil, fmt.Errorf("stage %q is %s", s.name, state)
	}
	return g, nil
}

// GatherMetrics writes the metrics of a stage's current generation, in Prometheus' text
// format 0.0.4. A stage that does not know of metrics has none.
func (s *Supervisor) GatherMetrics(ctx context.Context, name string, w io.Writer) error {
	held := s.lock()
	st, err := held.stage(name)
	held.unlock()
	if err != nil {
		return err
	}
	g, err := st.serving()
	if err != nil {
		return err
	}
	return g.GatherMetrics(ctx, w)
}
