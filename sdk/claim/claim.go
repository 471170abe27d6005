// Package claim has what a stage says is its own: claims of paths, their text form, and
// which paths they cover. Host and stages use it alike; it needs the standard library only.
package claim

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// Claim declares a path as a stage's own.
type Claim struct {
	Path  string
	Match Match
}

// Match is which paths a claim covers. The values are those of stage.proto.
type Match int32

const (
	// MatchExact covers the path itself.
	MatchExact Match = iota + 1
	// MatchPrefix covers the path and everything below it: /a covers /a, /a/ and
	// /a/b, not /ab; /a/ covers /a/ and /a/b, not /a; / covers everything.
	MatchPrefix
	// MatchChild covers the path and one more segment: /a covers /a/b and /a/b/, not
	// /a, /a/ nor /a/b/c.
	MatchChild
	// MatchPattern, added to one of these, makes each segment * of the path stand for any
	// one that is not empty: /a/*/b covers /a/x/b, not /a/b nor /a//b. There is such a
	// segment, and in a claim of one path it is not the last: that is MatchChild.
	MatchPattern Match = 4
)

// Exact returns the claim of one path. Each segment * stands for any one.
func Exact(path string) Claim {
	if above, ok := strings.CutSuffix(path, childSuffix); ok {
		return Child(cmp.Or(above, "/"))
	}
	return pattern(path, MatchExact)
}

// Prefix returns the claim of a path and everything below it. Each segment * stands for any one.
func Prefix(path string) Claim { return pattern(path, MatchPrefix) }

// Child returns the claim of the paths one segment below path. Each segment * stands for any one.
func Child(path string) Claim { return pattern(path, MatchChild) }

func pattern(path string, match Match) Claim {
	if hasWildcard(path) {
		match |= MatchPattern
	}
	return Claim{Path: path, Match: match}
}

// wildcard is the segment of a pattern that stands for any one.
const wildcard = "*"

func hasWildcard(path string) bool {
	return strings.Contains(path, "*") && slices.Contains(strings.Split(path, "/"), wildcard)
}

// IsPattern reports whether segments of the path stand for any one.
func (c Claim) IsPattern() bool { return c.Match&MatchPattern != 0 }

// base is what the claim covers without regard to MatchPattern.
func (c Claim) base() Match { return c.Match &^ MatchPattern }

const (
	// MaxPath is the length of the longest path that can be claimed, in bytes.
	MaxPath = 1 << 10
	// MaxSegments is how many segments it can have.
	MaxSegments = 32
)

// Validate returns what is wrong with a claim. A claim that is not valid covers nothing.
func (c Claim) Validate() error {
	if !strings.HasPrefix(c.Path, "/") {
		return fmt.Errorf("claim %.100q: a path begins with /", c.Path)
	}
	if len(c.Path) > MaxPath {
		return fmt.Errorf("claim %.100q: a path has at most %d bytes, this one has %d", c.Path, MaxPath, len(c.Path))
	}
	if n := c.Segments(); n > MaxSegments {
		return fmt.Errorf("claim %.100q: a path has at most %d segments, this one has %d", c.Path, MaxSegments, n)
	}
	if c.Match < MatchExact || c.Match > MatchPattern|MatchChild || c.base() == 0 {
		return fmt.Errorf("claim %.100q: unknown match %d", c.Path, c.Match)
	}
	if c.IsPattern() && !hasWildcard(c.Path) {
		return fmt.Errorf("claim %.100q: a pattern has a segment %s", c.Path, wildcard)
	}
	if c.Match == MatchExact|MatchPattern && strings.HasSuffix(c.Path, childSuffix) {
		return fmt.Errorf("claim %.100q: the claim of one path does not end with a segment %s", c.Path, wildcard)
	}
	return nil
}

// Segments returns how many segments the path has: as many as it has slashes.
func (c Claim) Segments() int { return strings.Count(c.Path, "/") }

// The text form of a claim is its path and one of these; an exact one has no suffix.
const (
	prefixSuffix = "/**"
	childSuffix  = "/*"
)

// String returns the text form of the claim: /a covers that path, /a/** also everything
// below it, and /a/* the paths one segment below it. The claim of everything is /**.
// A segment * before the end stands for any one: /a/*/b/**. In the path, % and all but
// printable ASCII are percent-encoded as in a URL, and each other *.
func (c Claim) String() string {
	suffix := ""
	switch c.base() {
	case MatchPrefix:
		suffix = prefixSuffix
	case MatchChild:
		suffix = childSuffix
	}
	if suffix != "" && c.Path == "/" {
		return suffix
	}
	if !c.IsPattern() {
		return escape(c.Path) + suffix
	}
	segments := strings.Split(c.Path, "/")
	for i, segment := range segments {
		if segment != wildcard {
			segments[i] = escape(segment)
		}
	}
	return strings.Join(segments, "/") + suffix
}

// MarshalText implements encoding.TextMarshaler: the result is that of String.
func (c Claim) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler, as Parse does.
func (c *Claim) UnmarshalText(text []byte) error {
	parsed, err := Parse(string(text))
	if err == nil {
		*c = parsed
	}
	return err
}

// Parse returns the claim with a text form.
func Parse(text string) (Claim, error) {
	c, path := Claim{Match: MatchExact}, text
	if base, ok := strings.CutSuffix(text, prefixSuffix); ok {
		c.Match, path = MatchPrefix, cmp.Or(base, "/")
	} else if base, ok := strings.CutSuffix(text, childSuffix); ok {
		c.Match, path = MatchChild, cmp.Or(base, "/")
	}
	segments, encoded := strings.Split(path, "/"), ""
	for i, segment := range segments {
		literal, err := url.PathUnescape(segment)
		switch {
		case err != nil:
			return Claim{}, fmt.Errorf("claim %q: %w", text, err)
		case segment == wildcard:
			c.Match |= MatchPattern
		case strings.Contains(segment, wildcard):
			return Claim{}, fmt.Errorf("claim %q: wildcards are %s as a whole segment and %s at the end; write %%2A for the character",
				text, wildcard, prefixSuffix)
		case literal == wildcard || strings.Contains(literal, "/"):
			encoded = segment
		}
		segments[i] = literal
	}
	c.Path = strings.Join(segments, "/")
	if c.IsPattern() && encoded != "" {
		return Claim{}, fmt.Errorf("claim %q: no claim has a wildcard and the segment %s", text, encoded)
	}
	if err := c.Validate(); err != nil {
		return Claim{}, err
	}
	return c, nil
}

// Texts returns the text forms of claims.
func Texts(claims []Claim) []string {
	texts := make([]string, len(claims))
	for i, c := range claims {
		texts[i] = c.String()
	}
	return texts
}

// escape percent-encodes what would not be read back, and what does not print.
func escape(path string) string {
	var b strings.Builder
	for i := range len(path) {
		if c := path[i]; c <= ' ' || c >= 0x7f || c == '%' || c == '*' {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}
