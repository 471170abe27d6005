package sdk

import "github.com/catena-dev/catena/sdk/claim"

// Claim says that a path is the stage's own, so that the host goes straight to it.
// A stage gets only requests that one of its claims covers.
type Claim = claim.Claim

// Match says what a claim covers.
type Match = claim.Match

const (
	// MatchExact covers the path itself.
	MatchExact = claim.MatchExact
	// MatchPrefix covers the path and everything below it: /a covers /a, /a/ and
	// /a/b, not /ab; /a/ covers /a/ and /a/b, not /a; / covers everything.
	MatchPrefix = claim.MatchPrefix
	// MatchChild covers the path and one more segment: /a covers /a/b and /a/b/, not
	// /a nor /a/b/c.
	MatchChild = claim.MatchChild
)

// Exact returns the claim of one path.
func Exact(path string) Claim { return claim.Exact(path) }

// Prefix returns the claim of a path and everything below it.
func Prefix(path string) Claim { return claim.Prefix(path) }

// Child returns the claim of the paths one segment below path.
func Child(path string) Claim { return claim.Child(path) }
