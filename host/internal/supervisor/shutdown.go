package supervisor

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/catena-dev/catena/host/internal/lifecycle"
)

// stopTimeout bounds the end of one process, from Stop to SIGKILL.
const stopTimeout = 5 * time.Second

// RunPreShutdownHooks runs the pre-shutdown hooks of all stages while they still
// serve, all at once, each with the deadline. What failed is returned joined.
func (s *Supervisor) RunPreShutdownHooks(ctx context.Context, deadline time.Duration) error {
	var hooks []lifecycle.Hook
	for _, st := range s.chain() {
		g := st.generation()
		if g != nil && g.machine.State() == lifecycle.Serving {
			hooks = append(hooks, g.preShutdownHooks()...)
		}
	}
	return lifecycle.RunPreShutdown(ctx, hooks, deadline)
}

// Drain tells all stages that no new request will come, makes them end their
// long running requests over the time spread, and waits for the others until ctx
// ends. From here on a stage that dies is not restarted, and what waits for one that has
// died is refused.
func (s *Supervisor) Drain(ctx context.Context, spread time.Duration) {
	s.setStopping()
	for _, st := range s.chain() {
		if g := st.generation(); g != nil && g.proc.Err() != nil {
			s.refuse(g)
		}
	}
	var wg sync.WaitGroup
	for _, g := range s.everyone() {
		wg.Go(func() { g.drain(ctx, spread) })
	}
	wg.Wait()
}

// Stop ends all stages, from the head to the tail so that none loses a delegate
// that it still uses, and removes their sockets. It returns when every process is
// gone; it is bounded in time by SIGKILL.
func (s *Supervisor) Stop() error {
	s.setStopping()
	s.awaitTold()
	s.cancel()
	s.stopAll()
	s.running.Wait()
	s.stopAll() // what was just being started
	s.mu.Lock()
	listeners := slices.Collect(maps.Keys(s.listeners))
	s.mu.Unlock()
	var errs []error
	for _, l := range listeners {
		errs = append(errs, s.close(l))
	}
	return errors.Join(errs...)
}

func (s *Supervisor) stopAll() {
	for _, g := range s.everyone() {
		ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
		g.stop(ctx, "the server stops")
		cancel()
		s.forget(g)
	}
}

// everyone are the generations whose processes have not been seen to end: those of the
// chain from head to tail, then those of stages that have left it.
func (s *Supervisor) everyone() []*generation {
	place := map[*stage]int{}
	for i, st := range s.chain() {
		place[st] = i - len(s.chain())
	}
	s.mu.Lock()
	all := slices.Collect(maps.Keys(s.live))
	s.mu.Unlock()
	slices.SortFunc(all, func(a, b *generation) int { return cmp.Compare(place[a.stage], place[b.stage]) })
	return all
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
