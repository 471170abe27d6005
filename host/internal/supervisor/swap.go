package supervisor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/catena-dev/catena/host/internal/lifecycle"
)

// Swapped says how a swap went.
type Swapped struct {
	Stage, From, To string // generations
	Version         string
	// Ready is the time from the beginning until the new generation was ready to
	// take over.
	Ready time.Duration
}

// SwapOptions say how a stage is swapped.
type SwapOptions struct {
	// Change gets what the stage is made from, to change it; nil changes nothing.
	Change func(*Spec)
	// Rollback says when the old generation gets its place back. It takes the place of
	// that of the Spec if it is not zero.
	Rollback Rollback
}

// Swap brings up a new generation of a stage beside the one that serves, waits
// until it is ready, moves new requests to it at one point in time, and then drains
// and ends the old one in the background. Until the move, an error leaves the old
// generation as it was. One stage is swapped or restarted once at a time; a second
// swap is refused.
func (s *Supervisor) Swap(ctx context.Context, name string, opts SwapOptions) (*Swapped, error) {
	st, err := s.stage(name)
	if err != nil {
		return nil, err
	}
	if !s.begin() {
		return nil, errors.New("the server is stopping")
	}
	defer s.running.Done()
	if !st.changing.TryLock() {
		return nil, fmt.Errorf("stage %q: a swap or a restart is under way, try again when it is over", name)
	}
	defer st.changing.Unlock()

	began := time.Now()
	g, err := s.successor(ctx, st, opts.Change)
	if err != nil {
		return nil, fmt.Errorf("stage %q goes on with its old generation: %w", name, err)
	}
	ready := time.Since(began)
	old, err := s.serve(g)
	if err != nil {
		s.discard(g)
		return nil, fmt.Errorf("stage %q goes on with its old generation: %w", name, err)
	}
	s.publish()
	st.log.Info("stage swapped", "from", old.id, "to", g.id, "version", g.proc.Description().GetVersion(), "ready", ready.Round(time.Millisecond))
	s.running.Go(func() { s.retire(old) })
	return &Swapped{
		Stage: name, From: old.id, To: g.id, Version: g.proc.Description().GetVersion(), Ready: ready,
	}, nil
}

// begin counts something that Stop has to wait for, unless it has begun.
func (s *Supervisor) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping {
		return false
	}
	s.running.Add(1)
	return true
}

// successor brings up a generation with a socket of its own until it is ready.
func (s *Supervisor) successor(ctx context.Context, st *stage, change func(*Spec)) (*generation, error) {
	st.mu.Lock()
	spec := st.spec
	st.mu.Unlock()
	attached := spec.Attach != ""
	if change != nil {
		spec.Env = maps.Clone(spec.Env)
		change(&spec)
	}
	if attached && spec.Attach != "" {
		return nil, errAttached
	}
	ctx, cancel := context.WithTimeout(ctx, spec.StartTimeout)
	defer cancel()
	id, err := randomHex(4)
	if err != nil {
		return nil, err
	}
	l, err := spec.dataSocket(s.opts.RuntimeDir, id)
	if err != nil {
		return nil, err
	}
	g, err := s.prepare(ctx, st, spec, l)
	if err != nil {
		return nil, err
	}
	if err := s.awaitReady(ctx, g); err != nil {
		s.discard(g)
		return nil, err
	}
	return g, nil
}

var errAttached = errors.New("it is a process that was started by hand: end it and start another, the host attaches to that")

// readyPoll is how often a generation that is to take over is asked.
const readyPoll = 50 * time.Millisecond

// awaitReady runs the post-start hooks of a generation and waits until they have
// returned, all of its signals have come and all of its readiness checks pass.
func (s *Supervisor) awaitReady(ctx context.Context, g *generation) error {
	failed := make(chan error, 1)
	s.running.Go(func() {
		s.runHooks(g, func(_ lifecycle.Hook, err error) {
			select {
			case failed <- err:
			default:
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
			if err != nil {
				return err
			}
		case <-g.proc.Done():
			return g.proc.Err()
		case <-ctx.Done():
			return fmt.Errorf("the new generation did not become ready within its startTimeout: %w", unready)
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

// retire ends a generation that another has taken the place of: its requests finish,
// its watches end over time, its pre-shutdown hooks run.
func (s *Supervisor) retire(g *generation) {
	g.retired.Store(true)
	ctx, cancel := context.WithTimeout(s.background, g.spec.DrainTimeout)
	g.drain(ctx, g.spec.DrainSpread)
	if g.machine.State().Ended() {
		// It crashed before it was replaced.
	} else if err := lifecycle.RunPreShutdown(ctx, g.preShutdownHooks(), g.spec.DrainTimeout); err != nil && ctx.Err() == nil {
		g.stage.log.Warn("pre-shutdown hook of the old generation failed", "generation", g.id, "error", err)
	}
	cancel()
	ctx, cancel = context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	g.stop(ctx, "replaced")
	s.forget(g)
	if err := g.listener.Close(); err != nil {
		g.stage.log.Warn("socket of the old generation", "generation", g.id, "error", err)
	}
}
