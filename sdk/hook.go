package sdk

import (
	"context"
	"errors"
	"maps"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// PostStartHook registers a function that runs once the server serves. All hooks
// of all stages run at the same time, in no order; the server is ready when all have
// returned. An error ends the server. The context ends when the stage stops, so a hook
// may start goroutines that run until then.
func (e *Env) PostStartHook(name string, f func(context.Context) error) {
	e.register("PostStartHook "+name, func() error { return e.start.add(name, f) })
}

// PreShutdownHook registers a function that runs before the server stops, while it
// still serves. The server waits for it. An error is logged.
func (e *Env) PreShutdownHook(name string, f func(context.Context) error) {
	e.register("PreShutdownHook "+name, func() error { return e.shutdown.add(name, f) })
}

// hooks are named functions, each of which runs once at most.
type hooks struct{ byName map[string]*hook }

type hook struct {
	run          func(context.Context) error
	ran, running bool
}

func (h *hooks) add(name string, f func(context.Context) error) error {
	switch {
	case name == "":
		return errors.New("without a name")
	case f == nil:
		return errors.New("without a function")
	case h.byName[name] != nil:
		return errors.New("registered twice")
	}
	if h.byName == nil {
		h.byName = map[string]*hook{}
	}
	h.byName[name] = &hook{run: f}
	return nil
}

func (h *hooks) names() []string { return slices.Sorted(maps.Keys(h.byName)) }

func (h *hooks) running() []string {
	return slices.DeleteFunc(h.names(), func(name string) bool { return !h.byName[name].running })
}

// take returns a hook that has not run yet, and marks it as run.
func (h *hooks) take(name string) (*hook, error) {
	k := h.byName[name]
	switch {
	case k == nil:
		return nil, status.Errorf(codes.NotFound, "no hook %q", name)
	case k.ran:
		return nil, status.Errorf(codes.FailedPrecondition, "hook %q has run already", name)
	}
	k.ran = true
	return k, nil
}

// runHook runs a hook of the set. It returns when the hook has, when the caller gives
// up, which does not end the hook, or when the stage stops.
func (e *Env) runHook(ctx context.Context, set *hooks, name string) error {
	e.mu.Lock()
	k, err := set.take(name)
	if err == nil {
		k.running = true
	}
	e.mu.Unlock()
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	e.hookRuns.Go(func() {
		err := guard(e.Log, "hook "+name, func() error { return k.run(e.ctx) })
		e.mu.Lock()
		k.running = false
		e.mu.Unlock()
		done <- err
	})
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
}

// awaitHooks waits for the hooks that still run when the stage stops, until ctx ends.
func (e *Env) awaitHooks(ctx context.Context) {
	done := make(chan struct{})
	go func() {
		e.hookRuns.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
		e.mu.Lock()
		defer e.mu.Unlock()
		names := append(e.start.running(), e.shutdown.running()...)
		e.Log.Warn("hooks have not ended with the stage", "hooks", names)
	}
}
