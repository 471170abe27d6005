package generation

import (
	"fmt"
	"strings"

	"github.com/catena-dev/catena/host/internal/bounds"
	"github.com/catena-dev/catena/sdk/claim"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// LimitClaims is the name of the limit of a stage's claims.
const LimitClaims = "claims"

// checkClaims refuses malformed claims, and too many.
func checkClaims(claims []*stagev1.Claim) error {
	if err := checkNumber(claims); err != nil {
		return err
	}
	for _, c := range stagev1.DecodeClaims(claims) {
		if err := c.Validate(); err != nil {
			return fmt.Errorf("its claims: %w", err)
		}
	}
	return nil
}

// checkNumber refuses too many claims: the table that all requests go by is made from them.
func checkNumber(claims []*stagev1.Claim) error {
	if len(claims) > bounds.Claims {
		return fmt.Errorf("it makes %d claims; a stage can have %d", len(claims), bounds.Claims)
	}
	segments, patterns := 0, 0
	for _, c := range claims {
		segments += strings.Count(c.GetPath(), "/")
		if claim.Match(c.GetMatch())&claim.MatchPattern != 0 {
			patterns++
		}
	}
	if segments > bounds.Segments {
		return fmt.Errorf("the paths of its claims have %d segments; those of a stage can have %d", segments, bounds.Segments)
	}
	if patterns > bounds.Patterns {
		return fmt.Errorf("%d of its claims have a wildcard before the end; %d of a stage can have one", patterns, bounds.Patterns)
	}
	return nil
}

// valid returns the claims that count, of a stage that serves: one that is being prepared is refused for others. What is wrong with
// these is logged when it is new.
func (g *Generation) valid(claims []*stagev1.Claim) []*stagev1.Claim {
	claims = g.granted(claims)
	good := make([]*stagev1.Claim, 0, len(claims))
	var wrong []string
	for i, c := range stagev1.DecodeClaims(claims) {
		if err := c.Validate(); err == nil {
			good = append(good, claims[i])
		} else if len(wrong) < bounds.Rejected {
			wrong = append(wrong, err.Error())
		}
	}
	rejected := strings.Join(wrong, "; ")
	if rejected != "" && rejected != g.void.rejected && g.limits.Due("rejected") {
		g.opts.Log.Warn("the stage makes claims that do not count", "generation", g.id, "claims", rejected)
	}
	g.void.rejected = rejected
	return good
}

// granted returns the claims that the stage may make. The others are logged when they are new.
func (g *Generation) granted(claims []*stagev1.Claim) []*stagev1.Claim {
	var good []*stagev1.Claim
	var refused []string
	for i, c := range stagev1.DecodeClaims(claims) {
		if c.Validate() != nil || g.spec.Grants.AllowsClaim(c) {
			good = append(good, claims[i])
		} else if len(refused) < bounds.Rejected {
			refused = append(refused, c.String())
		}
	}
	if text := strings.Join(refused, " "); text != g.void.ungranted {
		g.void.ungranted = text
		if text != "" && g.limits.Due("ungranted") {
			g.opts.Log.Debug("the stage makes claims that it is not granted: they do not count", "generation", g.id, "claims", text)
		}
	}
	return good
}

// listed returns the paths that the stage may list, with these claims. The others are logged when they are new.
func (g *Generation) listed(paths []string, claims []*stagev1.Claim) []string {
	good, refused := g.spec.Grants.Listed(paths, stagev1.DecodeClaims(claims))
	if text := strings.Join(refused[:min(len(refused), bounds.Rejected)], " "); text != g.void.unclaimed {
		g.void.unclaimed = text
		if text != "" && g.limits.Due("unclaimed") {
			g.opts.Log.Debug("the stage lists paths that it does not claim: they do not count", "generation", g.id, "paths", text)
		}
	}
	return good
}

// logShadowed logs the claims whose paths the host serves itself, each of them once. A
// claim to everything is not one of them.
func (g *Generation) logShadowed(claims []*stagev1.Claim) {
	if g.opts.HostPaths == nil {
		return
	}
	host := newHostPaths(g.opts.HostPaths())
	var fresh []string
	for _, c := range claims {
		path := c.GetPath()
		if len(g.shadowed) == bounds.Shadowed {
			break
		}
		if !g.shadowed[path] && host.shadow(c) {
			if g.shadowed == nil {
				g.shadowed = map[string]bool{}
			}
			g.shadowed[path] = true
			fresh = append(fresh, path)
		}
	}
	if len(fresh) > 0 {
		g.opts.Log.Warn("the stage claims paths that the host serves itself, and gets no requests for them",
			"generation", g.id, "paths", strings.Join(fresh, " "))
	}
}

// hostPaths are Options.HostPaths in a form that is quick to search.
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

// shadow reports whether the host serves the path of a claim itself. That it serves some of
// the paths below does not count.
func (h hostPaths) shadow(c *stagev1.Claim) bool {
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
