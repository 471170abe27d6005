package chain

import "strings"

// Covers says whether the claim covers a path.
func (c Claim) Covers(path string) bool {
	return NewTable([]StageClaims{{Claims: []Claim{c}}}).First(path) == 0
}

// suffixes tell the kinds of claims apart in text; an exact one has none.
var suffixes = map[Match]string{Prefix: "/*", Child: "/+"}

// String is the claim for people: /a for the path alone, /a/* for it and everything
// below, /a/+ for one more segment. For the prefix /a/, it is /a//*.
func (c Claim) String() string {
	if c == everything {
		return "/*"
	}
	return c.Path + suffixes[c.Match]
}

var everything = Claim{Path: "/", Match: Prefix}

// ParseClaim reads what String has written.
func ParseClaim(text string) Claim {
	if text == "/*" {
		return everything
	}
	for match, suffix := range suffixes {
		if path, ok := strings.CutSuffix(text, suffix); ok && path != "" {
			return Claim{Path: path, Match: match}
		}
	}
	return Claim{Path: text, Match: Exact}
}
