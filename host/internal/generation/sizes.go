package generation

import (
	"strings"

	"github.com/catena-dev/catena/host/internal/bounds"
	"github.com/catena-dev/catena/sdk/claim"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// LimitSizes is the name of the limit of the sizes of resources.
const LimitSizes = "resourceSizes"

// sizes are the resources of which a process has reported the size. Only Follow uses them.
type sizes struct {
	known map[string]bool
	// foreign and full say that this has been logged.
	foreign, full bool
}

// validSizes returns the sizes that count: those of resources in groups that the stage claims,
// up to bounds.ResourceSizes of them. Full reports whether this is why some do not, for the first time.
func (g *Generation) validSizes(reported []*stagev1.ResourceSize) (good []*stagev1.ResourceSize, full bool) {
	if len(reported) == 0 {
		return nil, false
	}
	groups := groupsOf(stagev1.DecodeClaims(g.Report().Claims))
	for _, size := range reported {
		_, group, _ := strings.Cut(size.GetResource(), ".")
		switch {
		case !groups.has(group) || len(size.GetResource()) > bounds.ResourceName:
			if !g.sizes.foreign {
				g.sizes.foreign = true
				g.opts.Log.Warn("the stage reports the size of resources in a group that it does not claim; it does not count",
					"generation", g.id, "resource", shortened(size.GetResource()))
			}
		case !g.sizes.known[size.GetResource()] && len(g.sizes.known) >= bounds.ResourceSizes:
			full = full || !g.sizes.full
		default:
			if g.sizes.known == nil {
				g.sizes.known = map[string]bool{}
			}
			g.sizes.known[size.GetResource()] = true
			good = append(good, size)
		}
	}
	if full {
		g.sizes.full = true
		g.opts.Log.Warn("the stage reports the sizes of more resources than count", "generation", g.id, "limit",
			LimitSizes, "max", bounds.ResourceSizes)
	}
	return good, full
}

func shortened(s string) string { return s[:min(len(s), 100)] }

// groups are the API groups with paths that claims are on, or cover.
type groups struct {
	// core is the group without a name. All reports whether all others are among them.
	core, all bool
	named     map[string]bool
}

func groupsOf(claims []claim.Claim) groups {
	g := groups{named: map[string]bool{}}
	for _, c := range claims {
		if named, ok := strings.CutPrefix(c.Path, "/apis/"); ok {
			group, _, _ := strings.Cut(named, "/")
			g.named[group] = true
		}
		g.all = g.all || c.Meets(claim.Prefix("/apis/-")) // no group has that name
		g.core = g.core || c.Meets(claim.Prefix("/api"))
	}
	return g
}

func (g groups) has(group string) bool {
	if group == "" {
		return g.core
	}
	return g.all || g.named[group]
}
