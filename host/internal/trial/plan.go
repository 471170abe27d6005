package trial

import (
	"context"

	"github.com/catena-dev/catena/host/internal/admin"
	"github.com/catena-dev/catena/host/internal/declared"
	"github.com/catena-dev/catena/host/internal/supervisor"
	"github.com/catena-dev/catena/host/internal/upgrade"
)

// PlanUpgrade brings a binary of another release up beside the one that serves, compares the two, and ends it.
func (t *Trials) PlanUpgrade(ctx context.Context, req admin.PlanRequest) (*upgrade.Plan, error) {
	if !t.Serving.Load() {
		return nil, admin.ErrStarting
	}
	end, err := t.Stages.Begin(ctx, supervisor.PlanUpgrade, req.Stage)
	if err != nil {
		return nil, err
	}
	defer end()
	emulated := ""
	var tried supervisor.Spec
	trial, failure := t.Stages.Try(ctx, req.Stage, func(spec *supervisor.Spec) error {
		err := declared.SetBinary(t.Config(), spec, req.Binary, req.SHA256)
		if err == nil && req.Emulate {
			emulated, err = t.Minor(req.Stage)
			declared.Emulate(spec, emulated)
		}
		tried = *spec
		return err
	})
	if trial == nil {
		return nil, failure
	}
	defer trial.Close()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	flags, err := trial.Flags()
	if err != nil {
		return nil, err
	}
	in := t.input(supervisor.Move{
		Stage: req.Stage, From: trial.Serving, To: trial.Description(), Flags: flags, Emulates: emulated,
		Socket: trial.Socket(),
	})
	in.Sample, in.Failure = req.Sample, failure
	in.Controllers.Along = t.controllersFor(tried, trial.Description())
	if failure != nil {
		in.New.Get = nil
	}
	return upgrade.Make(ctx, in)
}
