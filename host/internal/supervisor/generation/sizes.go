package generation

import (
	"strings"

	"github.com/catena-dev/catena/sdk/claim"
	"github.com/catena-dev/catena/sdk/stagev1"
)

const (
	// maxSizes bounds the resources of which one process can report the size, and
	// maxResource the length of their names.
	maxSizes    = 10_000
	maxResource = 512
)

// sizes are the resources of which a process has reported the size. Only Follow uses them.
type sizes struct {
	known map[string]bool
	// foreign and full say that this has been logged.
	foreign, full bool
}

// validSizes returns the sizes that count: those of resources in groups that the stage claims,
// up to maxSizes of them. Full says that this is why some do not, for the first time.
func (g *Generation) validSizes(reported []*stagev1.ResourceSize) (good []*stagev1.ResourceSize, full bool) {
	if len(reported) == 0 {
		return nil, false
	}
	claims := stagev1.DecodeClaims(g.Report().Claims)
	groups := map[string]bool{}
	for _, size := range reported {
		_, group, _ := strings.Cut(size.GetResource(), ".")
		if _, ok := groups[group]; !ok {
			groups[group] = claimsGroup(claims, group)
		}
		switch {
		case !groups[group] || len(size.GetResource()) > maxResource:
			if !g.sizes.foreign {
				g.sizes.foreign = true
				g.opts.Log.Warn("the stage reports the size of resources in a group that it does not claim; it does not count",
					"generation", g.id, "resource", shortened(size.GetResource()))
			}
		case !g.sizes.known[size.GetResource()] && len(g.sizes.known) >= maxSizes:
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
		g.opts.Log.Warn("the stage reports the sizes of more resources than count", "generation", g.id, "limit", "resourceSizes", "max", maxSizes)
	}
	return good, full
}

func shortened(s string) string { return s[:min(len(s), 100)] }

// claimsGroup reports whether one of the claims is on paths of an API group, or covers it.
func claimsGroup(claims []claim.Claim, group string) bool {
	root := "/apis/" + group
	if group == "" {
		root = "/api"
	}
	for _, c := range claims {
		if c.Path == root || strings.HasPrefix(c.Path, root+"/") || c.Covers(root) {
			return true
		}
	}
	return false
}
