package sdk

import (
	"fmt"
	"strings"

	"github.com/catena-dev/catena/sdk/stagev1"
)

// Claim says that a path is the stage's own, so that the host goes straight to it.
// A stage gets only requests that one of its claims covers.
type Claim struct {
	Path  string
	Match Match
}

// Match says what a claim covers.
type Match int32

const (
	// MatchExact covers the path itself.
	MatchExact = Match(stagev1.Claim_EXACT)
	// MatchPrefix covers the path and everything below it: /a covers /a, /a/ and
	// /a/b, not /ab; /a/ covers /a/ and /a/b, not /a; / covers everything.
	MatchPrefix = Match(stagev1.Claim_PREFIX)
	// MatchChild covers the path and one more segment: /a covers /a/b and /a/b/, not
	// /a nor /a/b/c.
	MatchChild = Match(stagev1.Claim_CHILD)
)

// Exact returns the claim of one path.
func Exact(path string) Claim { return Claim{Path: path, Match: MatchExact} }

// Prefix returns the claim of a path and everything below it.
func Prefix(path string) Claim { return Claim{Path: path, Match: MatchPrefix} }

// Child returns the claim of the paths one segment below path.
func Child(path string) Claim { return Claim{Path: path, Match: MatchChild} }

// String is the claim as people write it: /a, /a/** or /a/*.
func (c Claim) String() string {
	base := strings.TrimSuffix(c.Path, "/")
	switch c.Match {
	case MatchPrefix:
		return base + "/**"
	case MatchChild:
		return base + "/*"
	default:
		return c.Path
	}
}

// Covers tells whether a request for path is covered by the claim.
func (c Claim) Covers(path string) bool {
	base := strings.TrimSuffix(c.Path, "/")
	switch c.Match {
	case MatchExact:
		return path == c.Path
	case MatchPrefix:
		return path == c.Path || c.Path == "/" || strings.HasPrefix(path, base+"/")
	case MatchChild:
		child, ok := strings.CutPrefix(path, base+"/")
		child = strings.TrimSuffix(child, "/")
		return ok && child != "" && !strings.Contains(child, "/")
	default:
		return false
	}
}

func (c Claim) check() error {
	switch {
	case !strings.HasPrefix(c.Path, "/"):
		return fmt.Errorf("claim %q: a path begins with /", c.Path)
	case c.Match < MatchExact || c.Match > MatchChild:
		return fmt.Errorf("claim %q: unknown match %d", c.Path, c.Match)
	}
	return nil
}

func claimsToWire(claims []Claim) []*stagev1.Claim {
	wire := make([]*stagev1.Claim, len(claims))
	for i, c := range claims {
		wire[i] = &stagev1.Claim{Path: c.Path, Match: stagev1.Claim_Match(c.Match)}
	}
	return wire
}

func claimsFromWire(wire []*stagev1.Claim) []Claim {
	claims := make([]Claim, len(wire))
	for i, c := range wire {
		claims[i] = Claim{Path: c.GetPath(), Match: Match(c.GetMatch())}
	}
	return claims
}
