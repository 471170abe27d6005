package server

import (
	"context"
	"io"
	"slices"
	"sync/atomic"

	"github.com/catena-dev/catena/host/internal/chain"
	"github.com/catena-dev/catena/host/internal/front"
	"github.com/catena-dev/catena/host/internal/grants"
	"github.com/catena-dev/catena/host/internal/metrics"
	"github.com/catena-dev/catena/host/internal/relay"
	"github.com/catena-dev/catena/host/internal/supervisor"
	"github.com/catena-dev/catena/sdk/claim"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// chainState is the state of the chain that the supervisor has published last: the relay
// routes by it, and the front, pages and metrics show it.
type chainState struct {
	front  *front.Frontend
	relay  *relay.Chain
	claims *claimsFile
	last   atomic.Pointer[[]supervisor.Published]
}

// stages are those of the chain, head first; none before the first publication.
func (c *chainState) stages() []supervisor.Published {
	if p := c.last.Load(); p != nil {
		return *p
	}
	return nil
}

// publish gives the relay and the front a new state of the chain. Calls do not overlap; the
// caller holds the lock of the supervisor.
func (c *chainState) publish(stages []supervisor.Published) {
	c.last.Store(&stages)
	routes := make([]relay.Stage, len(stages))
	claims := make([]chain.StageClaims, len(stages))
	saved := map[string][]claim.Claim{}
	for i, st := range stages {
		routes[i] = relay.Stage{Name: st.Name, Socket: st.Socket, Refusal: st.Refusal, Held: st.Held}
		claims[i] = chain.StageClaims{Name: st.Name, Claims: stagev1.DecodeClaims(st.Claims)}
		known := claims[i].Claims
		if st.Absent { // what is only assumed of it is not saved
			known = c.claims.of(st.Name)
		}
		if len(known) > 0 {
			saved[st.Name] = known
		}
	}
	c.relay.Set(tables(stages, claims), routes)
	c.front.SetListedPaths(c.listedPaths())
	c.claims.save(saved)
}

// tables are what requests go by. A stage that is not granted system requests gets those at
// paths that it may claim without a grant.
func tables(stages []supervisor.Published, claims []chain.StageClaims) relay.Tables {
	all := relay.Tables{All: grants.NewTable(claims)}
	system := slices.Clone(claims)
	differs := false
	for i, st := range stages {
		if st.Absent && len(st.Claims) == 1 && st.Claims[0].GetPath() == "/" {
			continue // what it claims is not known: nothing may fall through to later stages
		}
		if !st.Grants.SystemRequests && slices.ContainsFunc(system[i].Claims, grants.NeedsGrant) {
			system[i].Claims = slices.DeleteFunc(slices.Clone(system[i].Claims), grants.NeedsGrant)
			differs = true
		}
	}
	if differs {
		all.System = grants.NewTable(system)
	}
	return all
}

// listedPaths are the paths that the stages list, in the order of the chain.
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

func (c *chainState) resourceSizes(sizes []*stagev1.ResourceSize) {
	for _, s := range sizes {
		c.front.SetResourceSize(s.GetResource(), s.GetCount(), s.GetObjectBytes())
	}
}
