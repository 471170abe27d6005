package sdk

import "github.com/catena-dev/catena/sdk/claim"

// Claim declares a path as the stage's own, so that the host goes straight to it.
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
	// MatchPattern, added to one of these, makes each segment * of the path stand for any
	// one that is not empty: /a/*/b covers /a/x/b, not /a/b nor /a//b.
	MatchPattern = claim.MatchPattern
)

// Exact returns the claim of one path. Each segment * of it stands for any one that is not empty.
func Exact(path string) Claim { return claim.Exact(path) }

// Prefix returns the claim of a path and everything below it. Each segment * stands for any one that is not empty:
// Prefix("/api/v1/namespaces/*/secrets") covers the Secrets of all namespaces.
func Prefix(path string) Claim { return claim.Prefix(path) }

// Child returns the claim of the paths one segment below path. Each segment * stands for any one that is not empty.
func Child(path string) Claim { return claim.Child(path) }
