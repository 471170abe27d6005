package supervisor

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

// message is the error of a hook as the stage gave it, for callers that name the
// stage themselves.
func message(err error) error {
	if call := (*process.CallError)(nil); errors.As(err, &call) {
		return errors.New(call.Status.Message())
	}
	return err
}

// postStartHooks are the hooks that the generation has to run after its start.
func (g *generation) postStartHooks() []lifecycle.Hook {
	var hooks []lifecycle.Hook
	for _, name := range g.prepared.GetPostStartHooks() {
		hooks = append(hooks, lifecycle.Hook{Stage: g.Name(), Name: name, Run: func(ctx context.Context) error {
			_, err := g.proc.Client().RunPostStartHook(ctx, &stagev1.RunHookRequest{Name: name})
			if status.Code(err) == codes.Unavailable {
				g.awaitEnd(ctx) // a connection that has broken may be the first sign of it
			}
			return message(err)
		}})
	}
	return hooks
}

// endGrace is how long the end of a process may be later than that of its connections.
const endGrace = time.Second

// awaitEnd waits for the end of the process, if that is about to come.
func (g *generation) awaitEnd(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, endGrace)
	defer cancel()
	select {
	case <-g.proc.Done():
	case <-ctx.Done():
	}
}

// preShutdownHooks are the hooks that the generation runs before its end.
func (g *generation) preShutdownHooks() []lifecycle.Hook {
	var hooks []lifecycle.Hook
	for _, name := range g.prepared.GetPreShutdownHooks() {
		hooks = append(hooks, lifecycle.Hook{Stage: g.Name(), Name: name, Run: func(ctx context.Context) error {
			_, err := g.proc.Client().RunPreShutdownHook(ctx, &stagev1.RunHookRequest{Name: name})
			return message(err)
		}})
	}
	return hooks
}

// RunPostStartHooks starts the post-start hooks of all stages, all at once, and
// returns. The contexts of the hooks end with Stop. Failed is called with the
// error of a hook that failed, which names the hook and its stage, unless the stage is
// not required: that is restarted then.
func (s *Supervisor) RunPostStartHooks(failed func(error)) {
	s.mu.Lock()
	s.hooksDue = true
	s.mu.Unlock()
	for _, st := range s.chain() {
		g := st.generation()
		switch {
		case g == nil:
		case st.present().Required:
			s.running.Go(func() {
				s.runHooks(g, func(_ lifecycle.Hook, err error) {
					if err != nil && !s.isStopping() {
						failed(err)
					}
				})
			})
		default:
			s.running.Go(func() { s.runHooksOrKill(g) })
		}
	}
	s.reconcile()
}

// runHooks runs the post-start hooks of a generation, once. A hook that was cut short by
// the end of the process has failed only if the process ended itself, as
// Kubernetes' servers do when a hook of theirs fails; after a crash the next
// generation runs it again.
func (s *Supervisor) runHooks(g *generation, finished func(lifecycle.Hook, error)) {
	if g.hooksRun.Swap(true) {
		return
	}
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
