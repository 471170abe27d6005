package server

import (
	"context"
	"io"
	"net/http"
	"slices"
	"sync/atomic"

	"github.com/catena-dev/catena/host/internal/bounds"
	"github.com/catena-dev/catena/host/internal/canary"
	"github.com/catena-dev/catena/host/internal/chain"
	"github.com/catena-dev/catena/host/internal/datadir"
	"github.com/catena-dev/catena/host/internal/faults"
	"github.com/catena-dev/catena/host/internal/front"
	"github.com/catena-dev/catena/host/internal/grants"
	"github.com/catena-dev/catena/host/internal/metrics"
	"github.com/catena-dev/catena/host/internal/relay"
	"github.com/catena-dev/catena/host/internal/supervisor"
	"github.com/catena-dev/catena/host/internal/traffic"
	"github.com/catena-dev/catena/sdk/claim"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// chainState is the state of the chain that the supervisor has published last: the relay
// routes by it, and the front, pages and metrics show it.
type chainState struct {
	front  *front.Frontend
	relay  *relay.Chain
	claims *datadir.Claims
	faults *faults.Host
	// traffic measures the requests of the stages.
	traffic *traffic.Meter
	// serving reports whether the chain is up, so that it can be changed.
	serving atomic.Bool
	// void gets a value when other claims do not count than before. It has room for one.
	void chan struct{}
	last atomic.Pointer[[]supervisor.Published]
	// listed are the paths that each stage listed when it knew all that it serves.
	listed map[string][]string
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
func (c *chainState) publish(stages []supervisor.Published, split *supervisor.Split) {
	shown := sideOf(stages)
	if split == nil {
		c.relay.Set(shown.tables, shown.routes)
	} else {
		shown = c.publishSplit(shown, split)
	}
	c.last.Store(&shown.stages)
	saved := map[string][]claim.Claim{}
	for i, st := range shown.stages {
		known := shown.claims[i].Claims
		if st.Absent { // what is only assumed of it is not saved
			known = c.claims.Of(st.Name)
		}
		if len(known) > 0 {
			saved[st.Name] = known
		}
	}
	if i := versionStage(shown.tables.All, shown.stages); i >= 0 {
		c.front.SetVersion(c.relay.Only(shown.stages[i].Name))
	} else {
		c.front.SetVersion(nil)
	}
	c.front.SetServers(c.servers(shown.stages))
	c.front.SetListedPaths(c.index(shown.stages))
	c.claims.Save(saved)
	if c.faults.ClaimsVoid(grants.Voids(claimants(shown.stages, shown.claims), bounds.Rejected)) {
		select {
		case c.void <- struct{}{}:
		default:
		}
	}
}

// servers are the stages that are servers of Kubernetes.
func (c *chainState) servers(stages []supervisor.Published) (all []front.StageHandler) {
	for _, st := range stages {
		if st.Grants.Trusted() && st.KubernetesVersion != "" {
			all = append(all, front.StageHandler{Name: st.Name, Handler: c.relay.Only(st.Name)})
		}
	}
	return all
}

// index are the paths of the index at /: what a stage has listed stays until the process that has taken its place knows all that it serves.
func (c *chainState) index(stages []supervisor.Published) []string {
	var paths []string
	listed := make(map[string][]string, len(stages))
	for _, st := range stages {
		listed[st.Name] = st.Paths
		if st.Incomplete || st.Socket == "" {
			listed[st.Name] = slices.Compact(slices.Sorted(slices.Values(slices.Concat(st.Paths, c.listed[st.Name]))))
		}
		paths = append(paths, listed[st.Name]...)
	}
	c.listed = listed
	return paths
}

// publishSplit gives the relay both sides of a chain, and returns the one that counts for all else: the new one only when
// all requests of clients have moved.
func (c *chainState) publishSplit(old side, split *supervisor.Split) side {
	next := sideOf(split.Chain)
	c.relay.SetSplit(old.tables, old.routes, relay.Split{
		Tables: next.tables, Stages: next.routes, Share: split.Share, Spread: split.Spread,
		Includes: func(r *http.Request) bool {
			key, ok := front.CanaryKey(r, split.By)
			return ok && canary.Includes(key, split.Share)
		},
	})
	if split.Share >= 1 {
		return next
	}
	return old
}

// side is a chain as the supervisor publishes it, and as the relay takes it.
type side struct {
	stages []supervisor.Published
	claims []chain.StageClaims
	tables relay.Tables
	routes []relay.Stage
}

func sideOf(stages []supervisor.Published) side {
	s := side{stages: stages, claims: claimsOf(stages), routes: make([]relay.Stage, len(stages))}
	for i, st := range stages {
		s.routes[i] = relay.Stage{
			Name: st.Name, Socket: st.Socket, Refusal: st.Refusal, Held: st.Held, Incomplete: st.Incomplete,
			Kubernetes: st.Grants.Kubernetes(), DiscardsBodies: st.DiscardsBodies,
		}
	}
	s.tables = tables(stages, s.claims)
	return s
}

func claimsOf(stages []supervisor.Published) []chain.StageClaims {
	all := make([]chain.StageClaims, len(stages))
	for i, st := range stages {
		all[i] = chain.StageClaims{Name: st.Name, Claims: stagev1.DecodeClaims(st.Claims)}
	}
	return all
}

// versionStage is the stage whose /version clients see: the one with the built-in resources, if it is of a release of Kubernetes.
// It is -1 without one.
func versionStage(table relay.Table, stages []supervisor.Published) int {
	const builtIn = "/api/v1"
	i := table.First(builtIn)
	for i >= 0 && stages[i].KubernetesVersion == "" {
		i = table.Next(builtIn, i)
	}
	return i
}

// tables are what requests go by. A stage that is not granted system requests gets those at
// paths that it may claim without a grant.
func tables(stages []supervisor.Published, claims []chain.StageClaims) relay.Tables {
	all := relay.Tables{All: newTable(stages, claims, false)}
	system := slices.Clone(claims)
	differs := false
	for i, st := range stages {
		if isUnknown(st) {
			differs = differs || !st.Grants.SystemRequests && st.Grants.Kubernetes()
			continue
		}
		if !st.Grants.SystemRequests && slices.ContainsFunc(system[i].Claims, grants.NeedsGrant) {
			system[i].Claims = slices.DeleteFunc(slices.Clone(system[i].Claims), grants.NeedsGrant)
			differs = true
		}
	}
	if differs {
		all.System = newTable(stages, system, true)
	}
	return all
}

// isUnknown reports whether it is not known what a stage claims: nothing that it may claim may fall through to later stages.
func isUnknown(st supervisor.Published) bool {
	return st.Absent && len(st.Claims) == 1 && st.Claims[0].GetPath() == "/"
}

// newTable returns the table of stages with these claims, of system requests or of all. A stage of which they are not
// known has, of the Kubernetes API, what it is granted.
func newTable(stages []supervisor.Published, claims []chain.StageClaims, system bool) relay.Table {
	all := claimants(stages, claims)
	known, differs := slices.Clone(all), false
	for i, st := range stages {
		if !isUnknown(st) {
			continue
		}
		known[i].Claims, differs = st.Grants.Claims, true
		if system && !st.Grants.SystemRequests {
			known[i].Claims = slices.DeleteFunc(slices.Clone(known[i].Claims), grants.NeedsGrant)
		}
	}
	if !differs {
		return grants.NewTable(all)
	}
	return grants.Divided{Kubernetes: grants.NewTable(known), Others: grants.NewTable(all)}
}

// claimants are stages with these claims.
func claimants(stages []supervisor.Published, claims []chain.StageClaims) []grants.Stage {
	all := make([]grants.Stage, len(stages))
	for i, st := range stages {
		all[i] = grants.Stage{
			Name: st.Name, Claims: claims[i].Claims, Grants: st.Grants, Unfinished: st.Unfinished || isUnknown(st),
		}
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

// metricsSources are the metrics of all stages. Those of a stage that is trusted as the server is come first: what type
// a family has is theirs to say.
func (c *chainState) metricsSources(gather func(ctx context.Context, stage string, w io.Writer) error) []metrics.Source {
	var trusted, others []metrics.Source
	for _, st := range c.stages() {
		source := metrics.Source{Stage: st.Name, Bounds: bounds.StageMetrics(), Gather: func(ctx context.Context, w io.Writer) error {
			return gather(ctx, st.Name, w)
		}}
		if st.Grants.Trusted() {
			source.Bounds = bounds.TrustedMetrics()
			trusted = append(trusted, source)
		} else {
			others = append(others, source)
		}
	}
	return slices.Concat(trusted, others)
}

func (c *chainState) resourceSizes(sizes []*stagev1.ResourceSize) {
	for _, s := range sizes {
		c.front.SetResourceSize(s.GetResource(), s.GetCount(), s.GetObjectBytes())
	}
}
