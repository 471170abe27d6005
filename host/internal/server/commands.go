package server

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/catena-dev/catena/host/internal/admin"
	"github.com/catena-dev/catena/host/internal/chain"
	"github.com/catena-dev/catena/host/internal/config"
	"github.com/catena-dev/catena/host/internal/front"
	"github.com/catena-dev/catena/host/internal/process"
	"github.com/catena-dev/catena/host/internal/store"
	"github.com/catena-dev/catena/host/internal/supervisor"
	"github.com/catena-dev/catena/host/internal/traffic"
	"github.com/catena-dev/catena/sdk/claim"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// commands are what the admin socket can ask for.
type commands struct {
	log      hclog.Logger
	logs     *logs
	source   admin.Source
	signals  *signals
	front    *front.Frontend
	stages   *supervisor.Supervisor
	chain    *chainState
	reloader *reloader
	storage  store.Options
	flags    *front.Flags
	shadows  *shadows
	history  *history
	traffic  *traffic.Meter
	checks   *checkResults
	version  string
	started  time.Time
	// upgradeHost hands over to another program.
	upgradeHost func(context.Context, admin.HostUpgradeRequest) error
	// serving reports whether the chain is up, so that it can be changed.
	serving atomic.Bool
	// upgrading is held while a plan of an upgrade is made or a shadow starts, and by a swap to another binary or release.
	upgrading sync.Mutex
}

var _ admin.Host = (*commands)(nil)

// Status is the state of the host.
func (c *commands) Status() admin.Status {
	status := admin.Status{
		Host: admin.HostStatus{
			Version: c.version, KubernetesVersion: c.front.Version(), PID: os.Getpid(), Since: c.started, Address: c.front.Addr().String(), Ready: c.front.WasReady(),
		},
		Stages: c.stages.MeasuredStatus(), Signals: c.signals.list(), LastReload: c.reloader.last.Load(), Shadow: c.shadows.summary(),
		Claims: map[string][]string{}, Checks: c.checks.get(),
	}
	names := make([]string, len(status.Stages))
	for i, st := range status.Stages {
		names[i] = st.Stage
	}
	status.Traffic = c.traffic.Stages(names)
	for _, st := range c.chain.stages() {
		status.Claims[st.Name] = claim.Texts(stagev1.DecodeClaims(st.Claims))
	}
	status.Events, status.Changes = c.history.list()
	return status
}

// UpgradeHost has another program take the place of this one.
func (c *commands) UpgradeHost(ctx context.Context, req admin.HostUpgradeRequest) error {
	err := c.upgradeHost(ctx, req)
	if err != nil {
		c.log.Warn("host not upgraded", "error", err)
	}
	return err
}

// Changed records a change that was asked for.
func (c *commands) Changed(change admin.Change) {
	c.history.change(change)
	took := time.Duration(change.TookSeconds * float64(time.Second)).Round(time.Millisecond)
	if change.Error != "" {
		c.log.Info("change by an operator refused", "by", change.By, "command", change.What, "took", took, "error", change.Error)
		return
	}
	c.log.Info("change by an operator", "by", change.By, "command", change.What, "took", took)
}

// Source is what the configuration is read from.
func (c *commands) Source() admin.Source { return c.source }

// Reload applies the configuration as it is now.
func (c *commands) Reload(ctx context.Context) (*admin.Reload, error) {
	if !c.serving.Load() {
		return nil, admin.ErrStarting
	}
	return c.reloader.reload(ctx)
}

// Swap replaces the process of a stage.
func (c *commands) Swap(ctx context.Context, req admin.SwapRequest) (*supervisor.Swapped, error) {
	if !c.serving.Load() {
		return nil, admin.ErrStarting
	}
	swapped, err := c.swap(ctx, req)
	if err != nil {
		c.log.Warn("stage not swapped", "error", err)
	}
	return swapped, err
}

func (c *commands) swap(ctx context.Context, req admin.SwapRequest) (*supervisor.Swapped, error) {
	cfg := c.reloader.config()
	opts := supervisor.SwapOptions{Rollback: mergeRollback(req.Rollback, req.Canary, cfg.Stages[req.Stage]), Canary: req.Canary, Allow: req.Allow}
	if err := c.stages.UnderCanary(); err != nil {
		return nil, err
	}
	all := c.stages.Specs()
	i := slices.IndexFunc(all, func(spec supervisor.Spec) bool { return spec.Name == req.Stage })
	if i < 0 || req.Binary == "" && all[i].Attach != "" {
		return c.stages.Swap(ctx, req.Stage, opts) // which says why not
	}
	if req.Binary != "" || req.Emulate || req.Finalize {
		if !c.upgrading.TryLock() {
			return nil, fmt.Errorf("stage %q: %w", req.Stage, errUpgrading)
		}
		defer c.upgrading.Unlock()
	}
	change, err := toBinary(cfg, req.Stage, cmp.Or(req.Binary, all[i].Binary), req.SHA256)
	if err == nil && req.Emulate {
		change, err = c.emulating(req.Stage, change)
	}
	var serving string
	if err == nil {
		serving, err = c.stages.Release(req.Stage)
	}
	if err == nil && req.Finalize {
		change, err = finalizing(cfg, all[i], serving, change)
	}
	if err != nil {
		c.stages.SwapRefused(req.Stage, err)
		return nil, err
	}
	// Where what is emulated is the release that serves, nothing is: another binary would emulate it unasked.
	if req.Binary != "" && !req.Emulate && supervisor.Emulates(all[i].Process, serving) == "" && len(cfg.Stages[req.Stage].APIServer[supervisor.EmulatedVersion]) == 0 {
		change = asItself(change)
	}
	opts.Change = func(spec *supervisor.Spec) {
		if req.Binary != "" || spec.Binary == all[i].Binary { // which it is not if a rollback has just brought back another
			change(spec)
		}
	}
	return c.stages.Swap(ctx, req.Stage, opts)
}

// Conclude ends the probation or the canary of a swap.
func (c *commands) Conclude(_ context.Context, req admin.ConcludeRequest) error {
	if !c.serving.Load() {
		return admin.ErrStarting
	}
	return c.stages.Conclude(req.Stage, req.Keep)
}

// toBinary returns what makes a stage one of the binary at path, which has been checked.
func toBinary(cfg *config.Config, stage, path, sha256 string) (func(*supervisor.Spec), error) {
	b, err := process.Check(path)
	if err != nil {
		return nil, err
	}
	digest, err := swapDigest(cfg, stage, b.Path, sha256)
	return func(spec *supervisor.Spec) { spec.Binary, spec.Digest = b.Path, digest }, err
}

// swapDigest returns the digest of the binary that a stage is to be swapped to. That of a locked
// stage must be the one that the operator gives or in the lock file.
func swapDigest(cfg *config.Config, stage, binary, sha256 string) (string, error) {
	if sha256 == "" {
		return approvedDigest(cfg, stage, binary, process.Digest)
	}
	digest, err := digestOf(cfg, stage, binary, process.Digest)
	if err == nil && !strings.EqualFold(digest, sha256) {
		err = fmt.Errorf("stage %q: %s: its sha256 is %s, --sha256 is %s", stage, binary, digest, sha256)
	}
	return digest, err
}

// Explain goes by the claims of the moment.
func (c *commands) Explain(ctx context.Context, req admin.ExplainRequest) (*admin.Explanation, error) {
	parsed, err := url.ParseRequestURI(req.Path)
	if err != nil {
		return nil, err
	}
	e := &admin.Explanation{Method: req.Method, Path: parsed.Path, Running: true, Host: c.front.Serves(parsed.Path)}
	states, outcomes := map[string]string{}, c.front.Metrics().Hops()
	for _, st := range c.stages.Status() {
		states[st.Stage] = st.State
	}
	for _, st := range c.chain.stages() {
		added := e.Add(chain.StageClaims{Name: st.Name, Claims: st.Grants.Covering(parsed.Path, stagev1.DecodeClaims(st.Claims))})
		added.State, added.Outcomes = states[st.Name], outcomes[st.Name]
	}
	e.Incomplete = c.stages.Incomplete()
	if req.As != "" {
		access, err := c.front.Authorize(ctx, req.Method, req.Path, req.As, req.Groups)
		if err != nil {
			return nil, err
		}
		e.Access = (*admin.Access)(&access)
	}
	return e, nil
}
