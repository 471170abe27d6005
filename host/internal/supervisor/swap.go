package supervisor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/catena-dev/catena/host/internal/lifecycle"
)

// SwapOptions say how a stage is swapped.
type SwapOptions struct {
	// Change gets what the stage is made from, to change it; nil changes nothing.
	Change func(*Spec)
	// Rollback says when the old generation gets its place back. It takes the place of
	// that of the Spec if it is not zero.
	Rollback Rollback
}

// Swapped says how a swap went.
type Swapped struct {
	Stage, From, To string // generations
	Version         string
	// Ready is the time from the beginning until the new generation was ready to
	// take over.
	Ready time.Duration
	// Also are stages in front that had to be swapped with it, since it lists other
	// paths than the generation before.
	Also []string
	// Probation is how long the old generation can take its place again.
	Probation time.Duration
}

// Swap brings up a new generation of a stage beside the one that serves, waits
// until it is ready, moves new requests to it at one point in time, and then drains
// and ends the old one in the background. Until the move, an error leaves the old
// generation as it was. While the chain is being changed, or the stage restarted, a swap
// is refused.
func (s *Supervisor) Swap(ctx context.Context, name string, opts SwapOptions) (*Swapped, error) {
	if _, err := s.stage(name); err != nil {
		return nil, err
	}
	if !s.begin() {
		return nil, errStopping
	}
	defer s.running.Done()
	if !s.changing.try() {
		return nil, fmt.Errorf("stage %q: %w", name, ErrBusy)
	}
	defer s.changing.done()
	s.endProbation()
	specs := s.specs()
	for i := range specs {
		if specs[i].Name == name && opts.Change != nil {
			specs[i].Env = maps.Clone(specs[i].Env)
			opts.Change(&specs[i])
		}
	}
	r := request{specs: specs, swap: name}
	if opts.Rollback.wanted() {
		r.rollback = &opts.Rollback
	}
	_, c, err := s.change(ctx, r)
	if err != nil {
		return nil, fmt.Errorf("stage %q goes on with its old generation: %w", name, err)
	}
	return c.swapped(), nil
}

func (c *change) swapped() *Swapped {
	r := &Swapped{Stage: c.swap, Ready: c.ready}
	for _, m := range c.moved {
		if m.stage.name != c.swap {
			r.Also = append(r.Also, m.stage.name)
			continue
		}
		r.From, r.To, r.Version = m.old.ID(), m.next.id, m.next.version()
	}
	if p := c.supervisor.probation.Load(); p != nil {
		r.Probation = p.length
	}
	return r
}

func (g *generation) version() string { return g.proc.Description().GetVersion() }

// readyPoll is how often a generation that is to take over is asked.
const readyPoll = 50 * time.Millisecond

// awaitReady runs the post-start hooks of a generation and waits until they have
// returned, all of its signals have come and all of its readiness checks pass.
func (s *Supervisor) awaitReady(ctx context.Context, g *generation) error {
	failed := make(chan error, 1)
	s.running.Go(func() {
		s.runHooks(g, func(_ lifecycle.Hook, err error) {
			if err != nil {
				select {
				case failed <- err:
				default:
				}
			}
		})
	})
	for {
		unready := g.unready(ctx)
		if unready == nil {
			return nil
		}
		select {
		case err := <-failed:
			return err
		case <-g.proc.Done():
			return g.proc.Err()
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return fmt.Errorf("stage %q: the new generation did not become ready within its startTimeout: %w", g.Name(), unready)
			}
			return fmt.Errorf("stage %q: the new generation was not waited for: %w", g.Name(), context.Cause(ctx))
		case <-time.After(readyPoll):
		}
	}
}

// unready says what a generation is still waiting for, nil if nothing.
func (g *generation) unready(ctx context.Context) error {
	for name, signal := range g.signals {
		select {
		case <-signal:
		default:
			return fmt.Errorf("signal %q has not come", name)
		}
	}
	for _, name := range g.prepared.GetPostStartHooks() {
		if err := g.hooks.check(name); err != nil {
			return fmt.Errorf("post-start hook %q: %w", name, err)
		}
	}
	for _, c := range g.prepared.GetHealthChecks() {
		if !c.GetReadyz() {
			continue
		}
		if err := g.check(ctx, c.GetName()); err != nil {
			return fmt.Errorf("readiness check %q: %w", c.GetName(), err)
		}
	}
	return nil
}

// retire ends a generation that another has taken the place of, or whose stage has left
// the chain: its requests finish, its watches end over time, its pre-shutdown hooks run.
func (s *Supervisor) retire(g *generation) {
	g.retired.Store(true)
	if err := g.proc.Err(); err != nil { // the requests that wait for it must not wait longer
		_ = g.machine.To(lifecycle.Failed, err.Error())
		s.forget(g)
		_ = s.close(g.listener)
		return
	}
	spec := g.stage.present()
	ctx, cancel := context.WithTimeout(s.background, spec.DrainTimeout)
	g.drain(ctx, spec.DrainSpread)
	if s.opts.AwaitEmpty != nil {
		// The stage has counted what has reached it. A request may be on its way still.
		_ = s.opts.AwaitEmpty(ctx, g.listener.Path())
	}
	cancel()
	// The hooks have that time too, whatever of it the requests have taken.
	if err := lifecycle.RunPreShutdown(s.background, g.preShutdownHooks(), spec.DrainTimeout); err != nil {
		g.stage.log.Warn("pre-shutdown hook of the old generation failed", "generation", g.id, "error", err)
	}
	ctx, cancel = context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	g.stop(ctx, "replaced")
	s.forget(g)
	if err := s.close(g.listener); err != nil {
		g.stage.log.Warn("socket of the old generation", "generation", g.id, "error", err)
	}
}
