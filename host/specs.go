package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/catena-dev/catena/host/internal/config"
	"github.com/catena-dev/catena/host/internal/process"
	"github.com/catena-dev/catena/host/internal/supervisor"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// findBinaries reports all binaries that cannot be started, and with them what is
// wrong with the flags, which nobody looks at then.
func (s *server) findBinaries(ctx context.Context) error {
	var err error
	if s.specs, err = specs(s.cfg, s.attach); err != nil {
		_, flagsErr := checkFlags(ctx, s.cfg)
		return listProblems(errors.Join(err, located(s.cfg, flagsErr)))
	}
	return nil
}

// specs is what the supervisor makes the stages from. The error joins what is
// wrong with their binaries.
func specs(cfg *config.Config, attach attachments) ([]supervisor.Spec, error) {
	var all []supervisor.Spec
	errs := []error{attach.check(cfg)}
	claims := readClaims(claimsFile(cfg.DataDir))
	for _, st := range cfg.Chain() {
		var b process.Binary
		if attach[st.Name] == "" {
			var err error
			b, err = findBinary(cfg, st.Name)
			errs = append(errs, err)
		}
		spec := specOf(st, b)
		spec.LastClaims = wireClaims(claims[st.Name])
		attach.apply(&spec)
		all = append(all, spec)
	}
	if err := errors.Join(errs...); err != nil {
		return all, err
	}
	return all, addDigests(all)
}

func specOf(st config.Stage, b process.Binary) supervisor.Spec {
	return supervisor.Spec{
		Name: st.Name, Binary: b.Path, SHA256: st.Sha256, Config: st.Config, Env: st.Env,
		User: st.Identity.User, Groups: st.Identity.Groups, StartTimeout: st.StartTimeout,
		LivenessTimeout: st.LivenessTimeout, DrainTimeout: st.DrainTimeout, DrainSpread: st.DrainSpread,
		Required: st.Required, Standby: st.Standby, Rollback: rollbackOf(st),
	}
}

// rollbackOf is what the configuration says of going back after a swap. It has been
// validated.
func rollbackOf(st config.Stage) supervisor.Rollback {
	r, err := config.ParseRollback(st.RollbackOn)
	if err != nil || len(st.RollbackOn) == 0 {
		return supervisor.Rollback{}
	}
	return supervisor.Rollback{ErrorRate: r.ErrorRate, Health: r.Health, Probation: st.Probation}
}

// addDigests notes what the binaries are, to know them from later ones.
func addDigests(all []supervisor.Spec) error {
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	for i := range all {
		spec := &all[i]
		if spec.Attach != "" {
			continue
		}
		wg.Go(func() {
			var err error
			if spec.Digest, err = process.Digest(spec.Binary); err != nil {
				errs[i] = fmt.Errorf("stage %q: %w", spec.Name, err)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// wireClaims reads claims as saveClaims writes them.
func wireClaims(saved []string) []*stagev1.Claim {
	var claims []*stagev1.Claim
	for _, text := range saved {
		c := &stagev1.Claim{Path: text, Match: stagev1.Claim_EXACT}
		if path, ok := strings.CutSuffix(text, "/*"); ok {
			c.Path, c.Match = path, stagev1.Claim_PREFIX
		} else if path, ok := strings.CutSuffix(text, "/+"); ok {
			c.Path, c.Match = path, stagev1.Claim_CHILD
		}
		claims = append(claims, c)
	}
	return claims
}
