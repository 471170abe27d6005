package generation

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/catena-dev/catena/host/internal/process"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// StopTimeout bounds the end of one process, from Stop to SIGKILL.
const StopTimeout = 5 * time.Second

// Drain makes the stage end its long running requests over the time spread, which a second call may make shorter, and
// waits for the others until ctx ends. What it could not do is logged.
func (g *Generation) Drain(ctx context.Context, spread time.Duration) {
	resp, err := g.process.Client().Drain(ctx, &stagev1.DrainRequest{Spread: durationpb.New(spread)})
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
	case err != nil && status.Code(err) != codes.Unimplemented:
		g.opts.Log.Warn("stage could not be drained", "generation", g.id, "error", err)
	case resp.GetRunning() > 0:
		g.opts.Log.Warn("stage still had requests at the end of its drain", "generation", g.id, "requests", resp.GetRunning())
	}
}

// Stop asks the stage to release what it holds and ends the process, by force when ctx
// ends. The error is that it did not end by itself.
func (g *Generation) Stop(ctx context.Context) error {
	g.end()
	return g.process.Stop(ctx)
}

// Kill ends the process at once. What it could not do is logged.
func (g *Generation) Kill() { g.KillBecause("") }

// KillBecause is Kill for a reason, which Err reports.
func (g *Generation) KillBecause(reason string) {
	g.end()
	ctx, cancel := context.WithTimeout(context.Background(), StopTimeout)
	defer cancel()
	if err := g.process.KillBecause(ctx, reason); err != nil {
		g.opts.Log.Warn("process could not be killed", "pid", g.PID(), "error", err)
	}
}

// CPU is the time that the process has used, which is known when it has ended.
func (g *Generation) CPU() time.Duration {
	var exit *process.ExitError
	if !errors.As(g.Err(), &exit) {
		return 0
	}
	return exit.State.UserTime() + exit.State.SystemTime()
}
