package server

import (
	"context"
	"io"
	"maps"
	"slices"
	"sync/atomic"

	"github.com/hashicorp/go-hclog"

	"github.com/catena-dev/catena/host/internal/chain"
	"github.com/catena-dev/catena/host/internal/datadir"
	"github.com/catena-dev/catena/host/internal/metrics"
	"github.com/catena-dev/catena/host/internal/relay"
	"github.com/catena-dev/catena/host/internal/supervisor"
	"github.com/catena-dev/catena/sdk/claim"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// chainState is the state of the chain that the supervisor has published last: the relay
// routes by it, and pages, metrics and discovery show it.
type chainState struct {
	log   hclog.Logger
	relay *relay.Chain // set before the first publication
	last  atomic.Pointer[[]supervisor.Published]

	dataDir string
	// saved are the claims in the data directory, for publish alone.
	saved map[string][]claim.Claim
}

func newChainState(dataDir string, log hclog.Logger) *chainState {
	return &chainState{log: log, dataDir: dataDir, saved: datadir.ReadClaims(dataDir)}
}

// stages are those of the chain, head first; none before the first publication.
func (c *chainState) stages() []supervisor.Published {
	if p := c.last.Load(); p != nil {
		return *p
	}
	return nil
}

// publish gives the relay a new state of the chain. Calls do not overlap.
func (c *chainState) publish(stages []supervisor.Published) {
	c.last.Store(&stages)
	routes := make([]relay.Stage, len(stages))
	claims := make([]chain.StageClaims, len(stages))
	for i, st := range stages {
		routes[i] = relay.Stage{Name: st.Name, Socket: st.Socket, Refusal: st.Refusal, Held: st.Held}
		claims[i] = chain.StageClaims{Name: st.Name, Claims: stagev1.DecodeClaims(st.Claims)}
	}
	c.relay.Set(chain.NewTable(claims), routes)
	if err := c.saveClaims(stages); err != nil {
		c.log.Warn("claims could not be saved for \"catena chain\"", "error", err)
	}
}

// saveClaims leaves the claims for "catena chain", and for a later start on which a stage
// that is not required does not come up. What is only assumed of such a stage is not saved.
func (c *chainState) saveClaims(stages []supervisor.Published) error {
	all := map[string][]claim.Claim{}
	for _, st := range stages {
		claims := stagev1.DecodeClaims(st.Claims)
		if st.Absent {
			claims = c.saved[st.Name]
		}
		if len(claims) > 0 {
			all[st.Name] = claims
		}
	}
	if maps.EqualFunc(all, c.saved, slices.Equal) {
		return nil
	}
	if err := datadir.WriteClaims(c.dataDir, all); err != nil {
		return err
	}
	c.saved = all
	return nil
}

func (c *chainState) listedPaths() []string {
	var paths []string
	for _, st := range c.stages() {
		paths = append(paths, st.Paths...)
	}
	return paths
}

// heldRequests is how many requests wait for a stage to come back.
func (c *chainState) heldRequests() int64 {
	var n int64
	for _, l := range c.relay.Loads() {
		n += int64(l.Waiting)
	}
	return n
}

// metricsSources are the metrics of all stages.
func (c *chainState) metricsSources(gather func(ctx context.Context, stage string, w io.Writer) error) []metrics.Source {
	var sources []metrics.Source
	for _, st := range c.stages() {
		sources = append(sources, metrics.Source{Stage: st.Name, Gather: func(ctx context.Context, w io.Writer) error {
			return gather(ctx, st.Name, w)
		}})
	}
	return sources
}

func (r *run) resourceSizes(sizes []*stagev1.ResourceSize) {
	for _, s := range sizes {
		r.front.SetResourceSize(s.GetResource(), s.GetCount(), s.GetObjectBytes())
	}
}
