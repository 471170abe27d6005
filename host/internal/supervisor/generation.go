package supervisor

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/catena-dev/catena/host/internal/lifecycle"
	"github.com/catena-dev/catena/host/internal/process"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// generation is one process of a stage.
type generation struct {
	id      string
	token   string
	stage   *stage
	machine *lifecycle.Machine
	proc    *process.Process
	// prepared is what PrepareRun answered; nil before.
	prepared *stagev1.PrepareRunResponse
	hooks    hookStates
	health   healthCache
}

func (g *generation) configure(ctx context.Context, behind []lifecycle.Report[report]) (report, error) {
	if err := g.machine.To(lifecycle.Configuring, ""); err != nil {
		return report{}, err
	}
	req, err := g.stage.configureRequest(g, behind)
	if err != nil {
		return report{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, g.stage.spec.StartTimeout)
	defer cancel()
	resp, err := g.proc.Client().Configure(ctx, req)
	if err != nil {
		return report{}, err
	}
	return report{paths: resp.GetListedPaths(), claims: resp.GetClaims()}, nil
}

func (g *generation) prepareRun(ctx context.Context) (report, error) {
	if err := g.machine.To(lifecycle.Preparing, ""); err != nil {
		return report{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, g.stage.spec.StartTimeout)
	defer cancel()
	resp, err := g.proc.Client().PrepareRun(ctx, &stagev1.PrepareRunRequest{})
	if err != nil {
		return report{}, err
	}
	g.prepared = resp
	g.hooks.expect(resp.GetPostStartHooks())
	return report{paths: resp.GetListedPaths(), claims: resp.GetClaims()}, nil
}

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
		hooks = append(hooks, lifecycle.Hook{Stage: g.stage.spec.Name, Name: name, Run: func(ctx context.Context) error {
			_, err := g.proc.Client().RunPostStartHook(ctx, &stagev1.RunHookRequest{Name: name})
			return message(err)
		}})
	}
	return hooks
}

// preShutdownHooks are the hooks that the generation runs before its end.
func (g *generation) preShutdownHooks() []lifecycle.Hook {
	var hooks []lifecycle.Hook
	for _, name := range g.prepared.GetPreShutdownHooks() {
		hooks = append(hooks, lifecycle.Hook{Stage: g.stage.spec.Name, Name: name, Run: func(ctx context.Context) error {
			_, err := g.proc.Client().RunPreShutdownHook(ctx, &stagev1.RunHookRequest{Name: name})
			return message(err)
		}})
	}
	return hooks
}

// watch follows what the stage reports until the process ends or ctx does.
func (g *generation) watch(ctx context.Context, event func(*generation, *stagev1.Event)) {
	stream, err := g.proc.Client().Watch(ctx, &stagev1.WatchRequest{})
	for err == nil {
		var e *stagev1.Event
		if e, err = stream.Recv(); err == nil {
			event(g, e)
		}
	}
	if ctx.Err() == nil && !errors.Is(err, io.EOF) && status.Code(err) != codes.Unimplemented {
		g.stage.log.Debug("stage ended its event stream", "generation", g.id, "error", err)
	}
}

// drain makes the stage end its long running requests and waits for the rest,
// until ctx ends.
func (g *generation) drain(ctx context.Context, spread time.Duration) {
	if err := g.machine.To(lifecycle.Draining, ""); err != nil {
		return
	}
	resp, err := g.proc.Client().Drain(ctx, &stagev1.DrainRequest{Spread: durationpb.New(spread)})
	switch {
	case err != nil && status.Code(err) != codes.Unimplemented:
		g.stage.log.Warn("stage could not be drained", "generation", g.id, "error", err)
	case resp.GetRunning() > 0:
		g.stage.log.Warn("stage still had requests at the end of its drain", "generation", g.id, "requests", resp.GetRunning())
	}
}

// stop ends the process, with Stop first and by force when ctx ends.
func (g *generation) stop(ctx context.Context, reason string) {
	if err := g.proc.Stop(ctx); err != nil {
		g.stage.log.Warn("stage did not stop by itself", "generation", g.id, "error", err)
	}
	_ = g.machine.To(lifecycle.Stopped, reason)
}
