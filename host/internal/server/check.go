package server

import (
	"context"
	"errors"

	"github.com/catena-dev/catena/host/internal/bounds"
	"github.com/catena-dev/catena/host/internal/connlimit"
	"github.com/catena-dev/catena/host/internal/declared"
	"github.com/catena-dev/catena/host/internal/problems"
	"github.com/catena-dev/catena/host/internal/supervisor"
)

// check returns what the stages are made from. It reports all binaries that cannot be started and all flags that are
// wrong, before anything is created. Of binaries that need no approval it leaves the digests to openFront.
func check(ctx context.Context, opts Options) ([]supervisor.Spec, error) {
	specs, err := declared.SpecsWithoutDigests(opts.Config, opts.Attach)
	if err == nil {
		err = declared.AddDigests(opts.Config, specs, true)
	}
	_, flagsErr := declared.CheckFlags(ctx, opts.Config)
	need := bounds.HostDescriptors
	for _, s := range specs {
		if s.Grants.Trusted() {
			need += bounds.StageDescriptors
		}
	}
	return specs, problems.List(errors.Join(err, problems.Locate(opts.Config, flagsErr), connlimit.CheckLimit(need)))
}
