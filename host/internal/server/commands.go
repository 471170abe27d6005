package server

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"os"
	"slices"
	"time"

	"github.com/catena-dev/catena/host/internal/admin"
	"github.com/catena-dev/catena/host/internal/chain"
	"github.com/catena-dev/catena/host/internal/config"
	"github.com/catena-dev/catena/host/internal/declared"
	"github.com/catena-dev/catena/host/internal/faults"
	"github.com/catena-dev/catena/host/internal/front"
	"github.com/catena-dev/catena/host/internal/grants"
	"github.com/catena-dev/catena/host/internal/supervisor"
	"github.com/catena-dev/catena/host/internal/trial"
	"github.com/catena-dev/catena/sdk/claim"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// commands are what the admin socket can ask for.
type commands struct {
	*trial.Trials

	logs     *logs
	source   admin.Source
	front    *front.Frontend
	stages   *supervisor.Supervisor
	chain    *chainState
	journal  *journal
	reloader *reloader
	upgrader *upgrader
	checks   *checkResults
	version  string
	started  time.Time
}

var _ admin.Host = (*commands)(nil)

// Status is the state of the host.
func (c *commands) Status() admin.Status {
	status := admin.Status{
		Host: admin.HostStatus{
			Version: c.version, KubernetesVersion: c.front.Version(), PID: os.Getpid(), Since: c.started,
			Address: c.front.Addr().String(), Ready: c.front.WasReady(),
		},
		Stages: c.stages.MeasuredStatus(), LastReload: c.reloader.last.Load(), Shadow: c.Summary(),
		Claims: map[string][]string{}, Checks: c.checks.get(),
	}
	names := make([]string, len(status.Stages))
	for i, st := range status.Stages {
		names[i] = st.Stage
	}
	status.Traffic, status.Load = c.chain.traffic.Stages(names), c.chain.relay.Loads()
	for _, st := range c.chain.stages() {
		status.Claims[st.Name] = claim.Texts(stagev1.DecodeClaims(st.Claims))
	}
	status.Events, status.Changes, status.Signals = c.journal.history.list()
	status.Faults = c.journal.faults.List(status.Stages, unready(status))
	return status
}

// unready are the checks that keep a server from being ready that was ready once, and is not to end.
func unready(s admin.Status) (failing []faults.Check) {
	ends := slices.ContainsFunc(s.Signals, func(s admin.Signal) bool { return s.Name == front.ShutdownInitiated })
	for _, c := range s.Checks {
		if s.Host.Ready && !ends && c.Required && c.Failure != "" && slices.Contains(c.Endpoints, "readyz") {
			failing = append(failing, faults.Check{Name: c.Name, Failure: c.Failure})
		}
	}
	return failing
}

// UpgradeHost has another program take the place of this one.
func (c *commands) UpgradeHost(ctx context.Context, req admin.HostUpgradeRequest) error {
	err := c.upgrader.upgrade(ctx, req)
	if err != nil {
		c.logs.host.Warn("host not upgraded", "error", err)
	}
	return err
}

// Changed records a change that was asked for.
func (c *commands) Changed(change admin.Change) {
	c.journal.history.change(change)
	took := time.Duration(change.TookSeconds * float64(time.Second)).Round(time.Millisecond)
	if change.Error != "" {
		c.logs.host.Info("change by an operator refused",
			"by", change.By, "command", change.What, "took", took, "error", change.Error)
		return
	}
	c.logs.host.Info("change by an operator", "by", change.By, "command", change.What, "took", took)
}

// Source is what the configuration is read from.
func (c *commands) Source() admin.Source { return c.source }

// Reload applies the configuration as it is now.
func (c *commands) Reload(ctx context.Context) (*admin.Reload, error) {
	if !c.chain.serving.Load() {
		return nil, admin.ErrStarting
	}
	return c.reloader.reload(ctx)
}

// Swap replaces the process of a stage.
func (c *commands) Swap(ctx context.Context, req admin.SwapRequest) (*supervisor.Swapped, error) {
	if !c.chain.serving.Load() {
		return nil, admin.ErrStarting
	}
	cfg := c.reloader.config()
	swapped, err := c.stages.Swap(ctx, req.Stage, supervisor.SwapOptions{
		Rollback: declared.MergeRollback(req.Rollback, req.Canary, cfg, req.Stage),
		Default:  declared.DefaultRollback(cfg, req.Stage),
		Canary:   req.Canary, Allow: req.Allow,
		Other:  req.Binary != "" || req.Emulate || req.Finalize,
		Change: func(spec *supervisor.Spec) error { return c.swapped(cfg, req, spec) },
		Along:  c.Along(cfg, req.Stage),
	})
	if err != nil {
		c.logs.host.Warn("stage not swapped", "error", err)
	}
	return swapped, err
}

// swapped makes of what a stage is made from what a swap makes of it.
func (c *commands) swapped(cfg *config.Config, req admin.SwapRequest, spec *supervisor.Spec) error {
	if req.Binary == "" && spec.Attach != "" {
		return nil // there is no file, and the swap is refused
	}
	serving, err := c.stages.Description(spec.Name)
	if err != nil {
		return err
	}
	emulates := supervisor.Emulates(spec.Process, serving.GetKubernetes().GetRelease()) != ""
	if err := declared.SetBinary(cfg, spec, cmp.Or(req.Binary, spec.Binary), req.SHA256); err != nil {
		return err
	}
	switch configured := len(cfg.Stages[spec.Name].APIServer[supervisor.EmulatedVersion]) > 0; {
	case req.Emulate:
		minor, err := c.Minor(spec.Name)
		declared.Emulate(spec, minor)
		return err
	case req.Finalize && configured:
		return fmt.Errorf("stages.%s.apiserver.%s is set: remove it and run catena reload", spec.Name, supervisor.EmulatedVersion)
	case req.Finalize && !emulates:
		return fmt.Errorf("stage %q serves as its own release: there is nothing to finalize", spec.Name)
	// Where what is emulated is the release that serves, nothing is: another binary would emulate it unasked.
	case req.Finalize, req.Binary != "" && !emulates && !configured:
		declared.Emulate(spec, "")
	}
	return nil
}

// Conclude ends the probation or the canary of a swap.
func (c *commands) Conclude(_ context.Context, req admin.ConcludeRequest) error {
	if !c.chain.serving.Load() {
		return admin.ErrStarting
	}
	return c.stages.Conclude(req.Stage, req.Keep)
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
		states[st.Stage] = string(st.State)
	}
	published := c.chain.stages()
	stages := claimants(published, claimsOf(published))
	for i, st := range published {
		added := e.Add(chain.StageClaims{Name: st.Name, Claims: grants.Covering(stages, i, parsed.Path)})
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
