package supervisor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/catena-dev/catena/host/internal/generation"
	"github.com/catena-dev/catena/host/internal/panics"
	"github.com/catena-dev/catena/host/internal/suggest"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// ErrNotInChain is why there is nothing to say of a stage.
var ErrNotInChain = errors.New("is not in the chain")

// notInChain returns the error about a stage, of those that are in the chain.
func notInChain(name string, stages []string) error {
	return fmt.Errorf("stage %q %w%s", name, ErrNotInChain, suggest.DidYouMean(name, stages))
}

// ErrNoProcess is why a stage has no debug pages at the moment.
var ErrNoProcess = errors.New("it has no such process")

// SetLogLevel has all processes of a stage log at a level. Later ones have that of StageLog.
func (s *Supervisor) SetLogLevel(ctx context.Context, name, level string) error {
	all, err := s.processesOf(name)
	if err != nil {
		return err
	}
	errs := make([]error, len(all))
	var calls sync.WaitGroup
	for i, g := range all {
		calls.Go(func() { errs[i] = panics.Call(func() error { return g.SetLogLevel(ctx, level) }) })
	}
	calls.Wait()
	return errors.Join(errs...)
}

// DebugPage calls piece with each piece of a page about a process of a stage: the one with an id or, if
// that is empty, the current one.
func (s *Supervisor) DebugPage(ctx context.Context, name, id string, req *stagev1.GetDebugPageRequest, piece func(*stagev1.GetDebugPageResponse) error) error {
	all, err := s.processesOf(name)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(all, func(g *generation.Generation) bool { return id == "" || g.ID() == id })
	if i < 0 {
		return fmt.Errorf("stage %q: %w", name, ErrNoProcess)
	}
	return all[i].DebugPage(ctx, req, piece)
}

// processesOf returns the processes of a stage that run, the current one first.
func (s *Supervisor) processesOf(name string) ([]*generation.Generation, error) {
	held := s.lock()
	defer held.unlock()
	st, err := held.stage(name)
	if err != nil {
		return nil, err
	}
	var all []*generation.Generation
	for _, g := range st.guarded.generations {
		select {
		case <-g.Done():
			continue
		default:
		}
		if g == st.guarded.current() {
			all = slices.Insert(all, 0, g)
		} else {
			all = append(all, g)
		}
	}
	return all, nil
}
