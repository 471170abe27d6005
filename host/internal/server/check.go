package server

import (
	"context"
	"errors"

	"github.com/catena-dev/catena/host/internal/bounds"
	"github.com/catena-dev/catena/host/internal/connlimit"
	"github.com/catena-dev/catena/host/internal/declared"
	"github.com/catena-dev/catena/host/internal/problems"
)

// check reports all binaries that cannot be started and all flags that are wrong, before
// anything is created. Of binaries that need no approval it leaves the digests to openFront.
func (r *run) check(ctx context.Context) error {
	var err error
	if r.specs, err = declared.SpecsWithoutDigests(r.Config, r.Attach); err == nil {
		err = declared.AddDigests(r.Config, r.specs, true)
	}
	_, flagsErr := declared.CheckFlags(ctx, r.Config)
	need := bounds.HostDescriptors
	for _, s := range r.specs {
		if s.Grants.Trusted() {
			need += bounds.StageDescriptors
		}
	}
	return problems.List(errors.Join(err, problems.Locate(r.Config, flagsErr), connlimit.CheckLimit(need)))
}
