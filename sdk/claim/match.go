package claim

import (
	"slices"
	"strings"
)

// tail is what may follow the segments of a claim.
type tail int

const (
	nothing tail = iota
	slash        // or nothing
	anything
	more // a slash and anything after it
)

// segment is one of a claim: a text, or any that is not empty.
type segment struct {
	text string
	any  bool
}

// takes reports whether the segment covers another.
func (s segment) takes(other segment) bool {
	if s.any {
		return other.any || other.text != ""
	}
	return s == other
}

// meets reports whether a segment is covered by both.
func (s segment) meets(other segment) bool { return s.takes(other) || other.takes(s) }

// cut splits a path that begins with a slash into its first segment and the rest,
// which is empty or begins with a slash.
func cut(path string) (segment, rest string) {
	path = path[1:]
	if i := strings.IndexByte(path, '/'); i >= 0 {
		return path[:i], path[i:]
	}
	return path, ""
}

// Covers reports whether the claim covers a path.
func (c Claim) Covers(path string) bool {
	if c.Validate() != nil {
		return false
	}
	above := c.above()
	if path == "" || path[0] != '/' {
		return above == "" && c.base() == MatchPrefix
	}
	for above != "" {
		if path == "" {
			return false
		}
		var own, text string
		own, above = cut(above)
		text, path = cut(path)
		if !c.segment(own).takes(segment{text: text}) {
			return false
		}
	}
	switch c.base() {
	case MatchPrefix:
		return path != "" || !strings.HasSuffix(c.Path, "/")
	case MatchChild:
		if path == "" {
			return false
		}
		text, rest := cut(path)
		return text != "" && (rest == "" || rest == "/")
	default:
		return path == ""
	}
}

// above is the path of the segments, as segments takes them.
func (c Claim) above() string {
	if c.base() == MatchExact {
		return c.Path
	}
	return strings.TrimSuffix(c.Path, "/")
}

// segment is that of a text in the path.
func (c Claim) segment(text string) segment {
	return segment{text, c.IsPattern() && text == wildcard}
}

// segments takes the claim apart.
func (c Claim) segments() (all []segment, end tail) {
	above := c.above()
	for rest := above; rest != ""; {
		var text string
		text, rest = cut(rest)
		all = append(all, c.segment(text))
	}
	switch {
	case c.base() == MatchChild:
		return append(all, segment{any: true}), slash
	case c.base() == MatchExact:
		return all, nothing
	case above != c.Path:
		return all, more
	default:
		return all, anything
	}
}

// Contains reports whether the claim covers every path that the other covers.
func (c Claim) Contains(other Claim) bool {
	if c.Validate() != nil || other.Validate() != nil {
		return false
	}
	own, end := c.segments()
	theirs, otherEnd := other.segments()
	if len(theirs) < len(own) || !slices.EqualFunc(own, theirs[:len(own)], segment.takes) {
		return false
	}
	rest := theirs[len(own):]
	switch end {
	case anything:
		return true
	case more:
		return len(rest) > 0 || otherEnd == more
	case slash:
		isSlash := len(rest) == 1 && rest[0] == segment{} && otherEnd == nothing
		return len(rest) == 0 && (otherEnd == nothing || otherEnd == slash) || isSlash
	default:
		return len(rest) == 0 && otherEnd == nothing
	}
}

// Meets reports whether there is a path that both claims cover.
func (c Claim) Meets(other Claim) bool {
	if c.Validate() != nil || other.Validate() != nil {
		return false
	}
	short, shortEnd := c.segments()
	long, longEnd := other.segments()
	if len(short) > len(long) {
		short, shortEnd, long, longEnd = long, longEnd, short, shortEnd
	}
	if !slices.EqualFunc(short, long[:len(short)], segment.meets) {
		return false
	}
	rest := long[len(short):]
	switch shortEnd {
	case anything:
		return true
	case more:
		return len(rest) > 0 || longEnd != nothing
	case slash:
		return len(rest) == 0 || len(rest) == 1 && rest[0] == segment{} && longEnd != more
	default:
		return len(rest) == 0 && longEnd != more
	}
}
