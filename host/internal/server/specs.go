package server

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"path/filepath"
	"strconv"
	"time"

	"github.com/catena-dev/catena/host/internal/bounds"
	"github.com/catena-dev/catena/host/internal/canary"
	"github.com/catena-dev/catena/host/internal/cgroup"
	"github.com/catena-dev/catena/host/internal/config"
	"github.com/catena-dev/catena/host/internal/connlimit"
	"github.com/catena-dev/catena/host/internal/datadir"
	"github.com/catena-dev/catena/host/internal/grants"
	"github.com/catena-dev/catena/host/internal/isolation"
	"github.com/catena-dev/catena/host/internal/problems"
	"github.com/catena-dev/catena/host/internal/process"
	"github.com/catena-dev/catena/host/internal/supervisor"
	"github.com/catena-dev/catena/sdk/claim"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// check reports all binaries that cannot be started and all flags that are wrong, before
// anything is created. Of binaries that need no approval it leaves the digests to openFront.
func (r *run) check(ctx context.Context) error {
	var err error
	if r.specs, err = withoutDigests(r.Config, r.Attach); err == nil {
		err = addDigests(r.Config, r.specs, true)
	}
	_, flagsErr := CheckFlags(ctx, r.Config)
	need := bounds.HostDescriptors
	for _, s := range r.specs {
		if s.Grants.Trusted() {
			need += bounds.StageDescriptors
		}
	}
	return problems.List(errors.Join(err, problems.Locate(r.Config, flagsErr), connlimit.CheckLimit(need)))
}

// specs is what the supervisor makes the stages from. The error joins what is wrong with
// their binaries.
func specs(cfg *config.Config, attach Attachments) ([]supervisor.Spec, error) {
	all, err := withoutDigests(cfg, attach)
	if err == nil {
		err = errors.Join(addDigests(cfg, all, true), addDigests(cfg, all, false))
	}
	return all, err
}

func withoutDigests(cfg *config.Config, attach Attachments) ([]supervisor.Spec, error) {
	var all []supervisor.Spec
	errs := []error{attach.check(cfg)}
	claims := datadir.ReadClaims(cfg.DataDir)
	for _, st := range cfg.Chain() {
		var b process.Binary
		if attach[st.Name] == "" {
			var err error
			b, err = FindBinary(cfg, st.Name)
			errs = append(errs, err)
		}
		spec := specOf(st, b)
		locking(cfg, &spec)
		spec.LastClaims = stagev1.EncodeClaims(claims[st.Name])
		attach.apply(&spec)
		all = append(all, spec)
	}
	return all, errors.Join(errs...)
}

func specOf(st config.Stage, b process.Binary) supervisor.Spec {
	return supervisor.Spec{
		Process: supervisor.Process{
			Name: st.Name, Binary: b.Path, SHA256: st.Sha256, Config: st.Config, Flags: st.APIServer,
			Env: environment(st), OpenFiles: st.Limits.OpenFiles,
			User: st.Identity.User, Groups: st.Identity.Groups, Grants: GrantsOf(st), Isolation: isolationOf(st),
			KernelLimits: kernelLimits(st.Limits),
		},
		Policy: supervisor.Policy{
			StartTimeout: st.StartTimeout, LivenessTimeout: st.LivenessTimeout,
			DrainTimeout: st.DrainTimeout, DrainSpread: st.DrainSpread,
			Required: st.Required, Standby: st.Standby, Rollback: rollbackOf(st),
			Limits: supervisor.Limits{MemorySoft: st.Limits.MemorySoftBytes(), Memory: st.Limits.MemoryBytes()},
		},
	}
}

// GrantsOf is what the configuration, which has been validated, grants a stage.
func GrantsOf(st config.Stage) grants.Grants {
	g := st.Grants
	granted := grants.Grants{
		Rewrite: g.Rewrite, Delegates: g.Delegates, SystemRequests: g.SystemRequests,
		Keys: g.Keys, Network: g.Network, Files: g.Files,
	}
	if g.Store != "none" {
		granted.Store = grants.Store(g.Store)
	}
	for _, text := range g.Claims {
		if c, err := claim.Parse(text); err == nil {
			granted.Claims = append(granted.Claims, c)
		}
	}
	return granted
}

// environment is that of the stage, with the limit of memory that Go's garbage collector keeps
// to unless the operator has set one: less than the soft limit, so that a stage which can do
// with that by collecting more often is not swapped for it.
func environment(st config.Stage) map[string]string {
	const name = "GOMEMLIMIT"
	soft := st.Limits.MemorySoftBytes()
	if _, set := st.Env[name]; set || soft == 0 {
		return st.Env
	}
	env := maps.Clone(st.Env)
	if env == nil {
		env = map[string]string{}
	}
	env[name] = strconv.FormatInt(soft/100*90, 10)
	return env
}

// kernelLimits are those that the kernel keeps, if it can.
func kernelLimits(l config.Limits) cgroup.Limits {
	return cgroup.Limits{Memory: l.MemoryBytes(), CPU: l.MilliCPU(), PIDs: l.PIDs}
}

// isolationOf is what the configuration, which has been validated, says of the isolation of a
// stage.
func isolationOf(st config.Stage) isolation.Spec {
	mode, err := isolation.ParseMode(st.Isolation)
	if err != nil {
		mode = isolation.Auto // the safest
	}
	return isolation.Spec{Mode: mode, Network: st.Grants.Network, Files: st.Grants.Files}
}

// Isolation is how a process of a stage is isolated that is only asked what it is: as the stage
// itself, but without a data directory.
func Isolation(cfg *config.Config, stage string) (isolation.Process, error) {
	p := isolation.Process{Spec: isolationOf(cfg.Stages[stage])}
	for _, dir := range []string{cfg.DataDir, cfg.RuntimeDir} {
		if dir == "" {
			continue
		}
		abs, err := filepath.Abs(dir)
		if err != nil {
			return p, err
		}
		p.Own = append(p.Own, abs)
	}
	p.Hidden = cfg.NamedFiles()
	return p, nil
}

// rollbackOf is what the configuration, which has been validated, says of going back after
// a swap; the zero value if there are no conditions.
func rollbackOf(st config.Stage) supervisor.Rollback {
	if st.Rollback == (config.Rollback{}) {
		return supervisor.Rollback{}
	}
	return supervisor.Rollback{ErrorRate: st.Rollback.ErrorRate, Health: st.Rollback.Health, Probation: st.Probation}
}

// defaultRollback is what a swap of a stage goes back on that is asked for without conditions: health, and the end of
// the new process, within ten seconds unless probation is set. It is nothing if rollbackOn is set, were it to nothing.
func defaultRollback(cfg *config.Config, stage string) supervisor.Rollback {
	switch key := "stages." + stage; {
	case cfg.IsSet(key + ".rollbackOn"):
		return supervisor.Rollback{}
	case cfg.IsSet(key + ".probation"):
		return supervisor.Rollback{Health: true, Probation: cfg.Stages[stage].Probation}
	}
	return supervisor.Rollback{Health: true, Probation: 10 * time.Second}
}

// mergeRollback completes what a swap was asked to go back on by the configuration of the
// stage: conditions alone get its probation, a probation alone gets its conditions. The
// zero value stays, unless it is for a canary: all of the configuration is in force then.
func mergeRollback(asked supervisor.Rollback, plan *canary.Plan, cfg *config.Config, stage string) supervisor.Rollback {
	configured, conditions := rollbackOf(cfg.Stages[stage]), asked.ErrorRate > 0 || asked.Health
	switch {
	case plan != nil && asked == (supervisor.Rollback{}) && plan.Limits == (canary.Limits{}):
		return configured
	case conditions && asked.Probation == 0:
		asked.Probation = cfg.Stages[stage].Probation
	case !conditions && asked.Probation > 0:
		if plan == nil { // a canary has conditions of its own
			configured = cmp.Or(configured, defaultRollback(cfg, stage))
		}
		asked.ErrorRate, asked.Health = configured.ErrorRate, configured.Health
	}
	return asked
}
