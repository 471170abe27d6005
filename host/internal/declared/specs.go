// Package declared is what a configuration means before anything runs: for each stage the file it is made from, the
// approval of that file, its grants, its limits and what a swap of it goes back on; for the host its store and its
// flags.
package declared

import (
	"errors"
	"maps"
	"path/filepath"
	"strconv"

	"github.com/catena-dev/catena/host/internal/cgroup"
	"github.com/catena-dev/catena/host/internal/config"
	"github.com/catena-dev/catena/host/internal/datadir"
	"github.com/catena-dev/catena/host/internal/grants"
	"github.com/catena-dev/catena/host/internal/isolation"
	"github.com/catena-dev/catena/host/internal/process"
	"github.com/catena-dev/catena/host/internal/supervisor"
	"github.com/catena-dev/catena/sdk/claim"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// Specs returns what the supervisor makes the stages from, head first. The error joins what is wrong with their
// binaries.
func Specs(cfg *config.Config, attach Attachments) ([]supervisor.Spec, error) {
	all, err := SpecsWithoutDigests(cfg, attach)
	if err == nil {
		err = errors.Join(AddDigests(cfg, all, true), AddDigests(cfg, all, false))
	}
	return all, err
}

// SpecsWithoutDigests is Specs without the digests of the binaries, which AddDigests adds.
func SpecsWithoutDigests(cfg *config.Config, attach Attachments) ([]supervisor.Spec, error) {
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
		setLocked(cfg, &spec)
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
			User: st.Identity.User, Groups: st.Identity.Groups, Grants: Grants(st), Isolation: isolationOf(st),
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

// Grants is what the configuration, which has been validated, grants a stage.
func Grants(st config.Stage) grants.Grants {
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
	p.Hidden = HiddenFiles(cfg)
	return p, nil
}

// HiddenFiles are the files and directories that isolated stages do not see unless they are granted.
func HiddenFiles(cfg *config.Config) []string {
	return cfg.NamedFiles(func(flag string) bool { return grants.FlagIs(flag, grants.FlagFile) })
}

// Emulate makes a stage serve as a minor release, such as 1.36, or as its own if that is empty.
func Emulate(spec *supervisor.Spec, minor string) {
	flags := map[string][]string{}
	maps.Copy(flags, spec.Flags)
	delete(flags, supervisor.EmulatedVersion)
	if minor != "" {
		flags[supervisor.EmulatedVersion] = []string{"kube=" + minor}
	}
	spec.Flags = flags
}
