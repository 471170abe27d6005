package supervisor

import (
	"strings"

	"github.com/catena-dev/catena/sdk/stagev1"
)

// maxVain bounds what is said of one generation: a stage can change its claims as often
// as it likes.
const maxVain = 20

// tellVain logs which claims are in vain, because the host answers for their paths itself:
// each of them once. A claim to everything is none of them. The caller holds mu.
func (g *generation) tellVain(claims []*stagev1.Claim) {
	if g.stage.opts == nil || g.stage.opts.HostPaths == nil {
		return
	}
	hosts := newHostPaths(g.stage.opts.HostPaths())
	var fresh []string
	for _, c := range claims {
		path := c.GetPath()
		if len(g.vain) == maxVain {
			break
		}
		if !g.vain[path] && hosts.answer(c) {
			if g.vain == nil {
				g.vain = map[string]bool{}
			}
			g.vain[path] = true
			fresh = append(fresh, path)
		}
	}
	if len(fresh) > 0 {
		g.stage.log.Warn("the stage claims what the host answers itself, and gets no request for it",
			"generation", g.id, "paths", strings.Join(fresh, " "))
	}
}

// hostPaths are Options.HostPaths in a form that is quick to ask.
type hostPaths struct {
	exact map[string]bool
	below []string // each ends with a slash
}

func newHostPaths(paths []string) hostPaths {
	h := hostPaths{exact: make(map[string]bool, len(paths))}
	for _, path := range paths {
		if h.exact[path] = true; path != "/" && strings.HasSuffix(path, "/") {
			h.below = append(h.below, path)
		}
	}
	return h
}

// answer tells whether the host answers for the path of a claim. That it answers for some
// paths that the claim covers besides does not count.
func (h hostPaths) answer(c *stagev1.Claim) bool {
	path := c.GetPath()
	if c.GetMatch() == stagev1.Claim_CHILD || path == "/" && c.GetMatch() != stagev1.Claim_EXACT {
		return false
	}
	if h.exact[path] {
		return true
	}
	for _, own := range h.below {
		if strings.HasPrefix(path, own) {
			return true
		}
	}
	return false
}
