// Package claim has what a stage says is its own: claims of paths, their text form, and
// which paths they cover. Host and stages use it alike; it needs the standard library only.
package claim

import (
	"cmp"
	"fmt"
	"net/url"
	"strings"
)

// Claim says that a path is a stage's own.
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
)

// Exact returns the claim of one path.
func Exact(path string) Claim { return Claim{Path: path, Match: MatchExact} }

// Prefix returns the claim of a path and everything below it.
func Prefix(path string) Claim { return Claim{Path: path, Match: MatchPrefix} }

// Child returns the claim of the paths one segment below path.
func Child(path string) Claim { return Claim{Path: path, Match: MatchChild} }

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
	if c.Match < MatchExact || c.Match > MatchChild {
		return fmt.Errorf("claim %.100q: unknown match %d", c.Path, c.Match)
	}
	return nil
}

// Segments returns how many segments the path has: as many as it has slashes.
func (c Claim) Segments() int { return strings.Count(c.Path, "/") }

// Covers reports whether the claim covers a path.
func (c Claim) Covers(path string) bool {
	if c.Validate() != nil {
		return false
	}
	below := strings.TrimSuffix(c.Path, "/") + "/"
	switch c.Match {
	case MatchPrefix:
		return c.Path == "/" || path == c.Path || strings.HasPrefix(path, below)
	case MatchChild:
		segment, ok := strings.CutPrefix(path, below)
		segment = strings.TrimSuffix(segment, "/")
		return ok && segment != "" && !strings.Contains(segment, "/")
	default:
		return path == c.Path
	}
}

// The text form of a claim is its path and one of these; an exact one has no suffix.
const (
	prefixSuffix = "/**"
	childSuffix  = "/*"
)

// String returns the text form of the claim: /a covers that path, /a/** also everything
// below it, and /a/* the paths one segment below it. The claim of everything is /**.
// In the path, %, * and all but printable ASCII are percent-encoded as in a URL.
func (c Claim) String() string {
	suffix := ""
	switch c.Match {
	case MatchPrefix:
		suffix = prefixSuffix
	case MatchChild:
		suffix = childSuffix
	}
	if suffix != "" && c.Path == "/" {
		return suffix
	}
	return escape(c.Path) + suffix
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
	if strings.Contains(path, "*") {
		return Claim{}, fmt.Errorf("claim %q: only %s or %s at the end are wildcards; write %%2A for the character", text, childSuffix, prefixSuffix)
	}
	var err error
	if c.Path, err = url.PathUnescape(path); err != nil {
		return Claim{}, fmt.Errorf("claim %q: %w", text, err)
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

// Contains reports whether the claim covers every path that the other covers.
func (c Claim) Contains(other Claim) bool {
	if c.Validate() != nil || other.Validate() != nil {
		return false
	}
	base := strings.TrimSuffix(other.Path, "/")
	switch {
	case other.Match == MatchExact:
		return c.Covers(other.Path)
	case c.Match == MatchPrefix && other.Match == MatchPrefix:
		return c.Path == "/" || other.Path != "/" && c.Covers(other.Path)
	case c.Match == MatchPrefix:
		return c.Covers(base + "/")
	case c.Match == MatchChild && other.Match == MatchChild:
		return strings.TrimSuffix(c.Path, "/") == base
	default:
		return false
	}
}
