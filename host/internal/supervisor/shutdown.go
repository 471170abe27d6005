package supervisor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/catena-dev/catena/host/internal/lifecycle"
	"github.com/catena-dev/catena/host/internal/process"
)

// stopTimeout bounds the end of one process, from Stop to SIGKILL.
const stopTimeout = 5 * time.Second

// RunPostStartHooks starts the post-start hooks of all stages, all at once, and
// returns. The contexts of the hooks end with Stop. Failed is called with the
// error of a hook that failed, which names the hook and its stage.
func (s *Supervisor) RunPostStartHooks(failed func(error)) {
	s.mu.Lock()
	s.hooksDue = true
	s.mu.Unlock()
	for _, st := range s.stages {
		g := st.generation()
		s.running.Go(func() {
			s.runHooks(g, func(_ lifecycle.Hook, err error) {
				if err != nil && !s.isStopping() {
					failed(err)
				}
			})
		})
	}
}

// runHooks runs the post-start hooks of a generation. A hook that was cut short by
// the end of the process has failed only if the process ended itself, as
// Kubernetes' servers do when a hook of theirs fails; after a crash the next
// generation runs it again.
func (s *Supervisor) runHooks(g *generation, finished func(lifecycle.Hook, error)) {
	lifecycle.RunPostStart(s.background, g.postStartHooks(), func(h lifecycle.Hook, err error) {
		if exit := (*process.ExitError)(nil); err != nil && errors.As(g.proc.Err(), &exit) {
			if !exit.State.Exited() || exit.State.Success() {
				return
			}
			err = fmt.Errorf("while its post-start hooks ran, %w", exit)
		}
		g.hooks.finished(h.Name, err)
		finished(h, err)
	})
}

// RunPreShutdownHooks runs the pre-shutdown hooks of all stages while they still
// serve, all at once, each with the deadline. What failed is returned joined.
func (s *Supervisor) RunPreShutdownHooks(ctx context.Context, deadline time.Duration) error {
	var hooks []lifecycle.Hook
	for _, st := range s.stages {
		g := st.generation()
		if g != nil && g.machine.State() == lifecycle.Serving {
			hooks = append(hooks, g.preShutdownHooks()...)
		}
	}
	return lifecycle.RunPreShutdown(ctx, hooks, deadline)
}

// Drain tells all stages that no new request will come, makes them end their
// long running requests over the time spread, and waits for the others until ctx
// ends. From here on a stage that dies is not restarted.
func (s *Supervisor) Drain(ctx context.Context, spread time.Duration) {
	s.setStopping()
	var wg sync.WaitGroup
	for _, st := range s.stages {
		if g := st.generation(); g != nil {
			wg.Go(func() { g.drain(ctx, spread) })
		}
	}
	wg.Wait()
}

// Stop ends all stages, from the head to the tail so that none loses a delegate
// that it still uses, and removes their sockets. It returns when every process is
// gone; it is bounded in time by SIGKILL.
func (s *Supervisor) Stop() error {
	s.setStopping()
	s.cancel()
	listeners := map[*process.Listener]bool{}
	for _, st := range s.stages {
		for _, g := range s.liveOf(st) {
			ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
			g.stop(ctx, "the server stops")
			cancel()
			s.forget(g)
			listeners[g.listener] = true
		}
	}
	s.running.Wait()
	var errs []error
	for _, st := range s.stages {
		if g := st.generation(); g != nil {
			listeners[g.listener] = true
		}
	}
	for l := range listeners {
		if err := l.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (s *Supervisor) setStopping() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopping = true
}

func (s *Supervisor) isStopping() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stopping
}

func (s *Supervisor) areHooksDue() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hooksDue
}
