package server

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/hashicorp/go-hclog"

	"github.com/catena-dev/catena/host/internal/admin"
	"github.com/catena-dev/catena/host/internal/chain"
	"github.com/catena-dev/catena/host/internal/config"
	"github.com/catena-dev/catena/host/internal/front"
	"github.com/catena-dev/catena/host/internal/process"
	"github.com/catena-dev/catena/host/internal/supervisor"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// commands are what the admin socket can ask for.
type commands struct {
	log      hclog.Logger
	source   admin.Source
	signals  *signals
	front    *front.Frontend
	stages   *supervisor.Supervisor
	chain    *chainState
	reloader *reloader
	// serving reports whether the chain is up, so that it can be changed.
	serving atomic.Bool
}

var _ admin.Host = (*commands)(nil)

// Status is the state of the host.
func (c *commands) Status() admin.Status {
	return admin.Status{Stages: c.stages.MeasuredStatus(), Signals: c.signals.list(), LastReload: c.reloader.last.Load()}
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
	opts := supervisor.SwapOptions{Rollback: mergeRollback(req.Rollback, cfg.Stages[req.Stage])}
	all := c.stages.Specs()
	i := slices.IndexFunc(all, func(spec supervisor.Spec) bool { return spec.Name == req.Stage })
	if i < 0 || req.Binary == "" && all[i].Attach != "" {
		return c.stages.Swap(ctx, req.Stage, opts) // which says why not
	}
	path := cmp.Or(req.Binary, all[i].Binary)
	b, err := process.Check(path)
	digest := ""
	if err == nil {
		digest, err = swapDigest(cfg, req, b.Path)
	}
	if err != nil {
		c.stages.SwapRefused(req.Stage, err)
		return nil, err
	}
	opts.Change = func(spec *supervisor.Spec) {
		switch path {
		case req.Binary:
			spec.Binary, spec.Digest = b.Path, digest
		case spec.Binary: // which it is not if a rollback has just brought back another
			spec.Digest = digest
		}
	}
	return c.stages.Swap(ctx, req.Stage, opts)
}

// swapDigest returns the digest of the binary that a stage is to be swapped to. That of a locked
// stage must be in the request or in the lock file.
func swapDigest(cfg *config.Config, req admin.SwapRequest, binary string) (string, error) {
	if req.SHA256 == "" {
		return approvedDigest(cfg, req.Stage, binary, process.Digest)
	}
	digest, err := digestOf(cfg, req.Stage, binary, process.Digest)
	if err == nil && !strings.EqualFold(digest, req.SHA256) {
		err = fmt.Errorf("stage %q: %s: its sha256 is %s, --sha256 is %s", req.Stage, binary, digest, req.SHA256)
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
		added := e.Add(chain.StageClaims{Name: st.Name, Claims: stagev1.DecodeClaims(st.Claims)})
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
