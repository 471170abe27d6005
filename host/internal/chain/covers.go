package chain

import (
	"strings"

	"github.com/catena-dev/catena/sdk/claim"
)

// Claims are those of package claim.
type (
	Claim = claim.Claim
	Match = claim.Match
)

// The matches of claims.
const (
	Exact  = claim.MatchExact
	Prefix = claim.MatchPrefix
	Child  = claim.MatchChild
)

// ParseClaim reads the text form of the claims file: /a for the path alone, /a/* for it and
// everything below, /a/+ for one more segment.
func ParseClaim(text string) Claim {
	if text == "/*" {
		return claim.Prefix("/")
	}
	if path, ok := strings.CutSuffix(text, "/*"); ok {
		return claim.Prefix(path)
	}
	if path, ok := strings.CutSuffix(text, "/+"); ok {
		return claim.Child(path)
	}
	return claim.Exact(text)
}
