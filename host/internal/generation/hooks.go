package generation

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/catena-dev/catena/host/internal/lifecycle"
	"github.com/catena-dev/catena/host/internal/process"
	"github.com/catena-dev/catena/sdk/stagev1"
)

var errHookRunning = errors.New("not finished")

// PostStartHooks are the names of the hooks that RunPostStartHooks runs.
func (g *Generation) PostStartHooks() []string { return g.prepared.GetPostStartHooks() }

// PostStartHook returns what became of a post-start hook: nil when it has returned
// without an error, and when the stage has none of that name.
func (g *Generation) PostStartHook(name string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.hooks[name]
}

// RunPostStartHooks runs the post-start hooks, once: all of them at the same time, until
// they have returned or ctx ends. Finished is called with each as it returns,
// concurrently. A hook that was cut short by the end of the process has failed only if the
// process ended itself, as Kubernetes' servers do when a hook of theirs fails; after a
// crash the next generation runs it again.
func (g *Generation) RunPostStartHooks(ctx context.Context, finished func(error)) {
	if g.hooksBegun.Swap(true) {
		return
	}
	var hooks []lifecycle.Hook
	for _, name := range g.PostStartHooks() {
		hooks = append(hooks, lifecycle.Hook{Stage: g.Name(), Name: name, Run: func(ctx context.Context) error {
			_, err := g.process.Client().RunPostStartHook(ctx, &stagev1.RunHookRequest{Name: name})
			if status.Code(err) == codes.Unavailable {
				g.awaitEnd(ctx) // a connection that has broken may be the first sign of it
			}
			return withoutStage(err)
		}})
	}
	lifecycle.RunPostStart(ctx, hooks, func(h lifecycle.Hook, err error) {
		if exit := (*process.ExitError)(nil); err != nil && errors.As(g.Err(), &exit) {
			if !exit.State.Exited() || exit.State.Success() {
				return
			}
			err = fmt.Errorf("while its post-start hooks ran, %w", exit)
		}
		g.mu.Lock()
		g.hooks[h.Name] = err
		g.mu.Unlock()
		finished(err)
	})
}

// RunPostStartHook runs one post-start hook of a process whose others do not run.
func (g *Generation) RunPostStartHook(ctx context.Context, name string) error {
	ctx, cancel := g.withStartTimeout(ctx)
	defer cancel()
	_, err := g.process.Client().RunPostStartHook(ctx, &stagev1.RunHookRequest{Name: name})
	if err != nil {
		return fmt.Errorf("post-start hook %q: %w", name, err)
	}
	return nil
}

// endGrace is how long the end of a process may be later than that of its connections.
const endGrace = time.Second

// awaitEnd waits for the end of the process, if that is about to come.
func (g *Generation) awaitEnd(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, endGrace)
	defer cancel()
	select {
	case <-g.Done():
	case <-ctx.Done():
	}
}

// PreShutdownHooks are the hooks that the stage runs before its end.
func (g *Generation) PreShutdownHooks() []lifecycle.Hook {
	var hooks []lifecycle.Hook
	for _, name := range g.prepared.GetPreShutdownHooks() {
		hooks = append(hooks, lifecycle.Hook{Stage: g.Name(), Name: name, Run: func(ctx context.Context) error {
			_, err := g.process.Client().RunPreShutdownHook(ctx, &stagev1.RunHookRequest{Name: name})
			return withoutStage(err)
		}})
	}
	return hooks
}

// withoutStage is the error as the stage gave it, for callers that name the stage
// themselves.
func withoutStage(err error) error {
	if call := (*process.CallError)(nil); errors.As(err, &call) {
		return errors.New(call.Status.Message())
	}
	return err
}
