package supervisor

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/catena-dev/catena/host/internal/generation"
	"github.com/catena-dev/catena/host/internal/lifecycle"
	"github.com/catena-dev/catena/host/internal/panics"
	"github.com/catena-dev/catena/host/internal/process"
)

// RunPreShutdownHooks runs the pre-shutdown hooks of all stages while they still
// serve, all at once, each for the timeout, which is preShutdownTimeout of the
// configuration. What failed is returned joined.
func (s *Supervisor) RunPreShutdownHooks(ctx context.Context, timeout time.Duration) error {
	ctx, cancel := process.WithTimeout(ctx, timeout, "preShutdownTimeout")
	defer cancel()
	var hooks []lifecycle.Hook
	held := s.lock()
	for _, st := range held.chain {
		if g := st.guarded.current(); g != nil && st.guarded.machine.State(g.ID()) == lifecycle.Serving {
			hooks = append(hooks, g.PreShutdownHooks()...)
		}
	}
	held.unlock()
	return lifecycle.RunPreShutdown(ctx, hooks)
}

// Drain tells all stages that no new request will come, makes them end their
// long running requests over the time spread, and waits for the others until ctx
// ends. From here on a stage that dies is not restarted, and what waits for one that has
// died is refused.
func (s *Supervisor) Drain(ctx context.Context, spread time.Duration) {
	s.beginStop()
	var wg sync.WaitGroup
	for _, p := range s.processes() {
		held := s.lock()
		err := p.stage.guarded.machine.Advance(p.ID(), lifecycle.Draining)
		held.unlock()
		if err == nil {
			wg.Go(panics.Contain(func() { p.Drain(ctx, spread) }, s.panicked))
		}
	}
	wg.Wait()
}

// beginStop keeps anything from being brought up, and refuses requests that wait for
// what would have been.
func (s *Supervisor) beginStop() {
	var waiting []*generation.Generation
	held := s.lock()
	held.stopping = true
	all := maps.Clone(held.stages)
	for _, st := range held.chain {
		all[st] = true
	}
	for st := range all {
		st.guarded.endStandby()
		if st.guarded.machine.Stop() {
			waiting = append(waiting, st.guarded.current())
		}
	}
	if len(waiting) > 0 {
		held.publish()
	}
	held.unlock()
	for _, g := range waiting {
		g.Listener().Refuse()
	}
}

// Stop ends all stages, from the head to the tail so that none loses a delegate
// that it still uses, and removes their sockets. It returns when every process is
// gone, and every event passed on; it is bounded in time by SIGKILL.
func (s *Supervisor) Stop() error {
	s.beginStop()
	s.awaitNotified()
	s.cancel()
	s.stopAll()
	s.running.Wait()
	s.stopAll() // what was just being started
	s.events.flush()
	return nil
}

func (s *Supervisor) stopAll() {
	for _, p := range s.processes() {
		p.stop("the server stops")
	}
	held := s.lock()
	stages := make([]*stage, 0, len(held.stages))
	for st := range held.stages {
		stages = append(stages, st)
	}
	held.unlock()
	for _, st := range stages { // the sockets of those that had ended
		held = s.lock()
		current := st.guarded.current()
		held.unlock()
		st.forget(existing(current)...)
	}
}

// Kill ends all processes at the same time, those that have not stopped by themselves
// after the given time by force. It is for a server that is not to end in order; Stop is
// due nevertheless.
func (s *Supervisor) Kill(after time.Duration) {
	s.beginStop()
	s.cancel()
	var wg sync.WaitGroup
	for _, p := range s.processes() {
		wg.Go(panics.Contain(func() { p.stopWithin("the server ends by force", after) }, s.panicked))
	}
	wg.Wait()
}

// processes are the generations whose processes have not been seen to end: those of the
// chain from head to tail, then those of stages that have left it.
func (s *Supervisor) processes() []live {
	held := s.lock()
	defer held.unlock()
	place := map[*stage]int{}
	for i, st := range held.chain {
		place[st] = i - len(held.chain)
	}
	var all []live
	for st := range held.stages {
		for _, g := range st.guarded.generations {
			if !st.guarded.machine.State(g.ID()).Ended() {
				all = append(all, live{g, st})
			}
		}
	}
	slices.SortFunc(all, func(a, b live) int { return cmp.Compare(place[a.stage], place[b.stage]) })
	return all
}
