package claim

import "strings"

// Set is claims in a form in which paths are quick to find. The zero value is that of no claims.
type Set struct {
	exact, child, prefix map[string]bool
	// above are the paths above those of the claims, without a slash at the end.
	above map[string]bool
}

// NewSet returns the set of some claims. Those that are not valid are left out.
func NewSet(claims ...Claim) Set {
	s := Set{exact: map[string]bool{}, child: map[string]bool{}, prefix: map[string]bool{}, above: map[string]bool{}}
	for _, c := range claims {
		if c.Validate() != nil {
			continue
		}
		base := strings.TrimSuffix(c.Path, "/")
		switch c.Match {
		case MatchPrefix:
			s.prefix[c.Path] = true
		case MatchChild:
			s.child[base] = true
		default:
			s.exact[c.Path] = true
		}
		if c.Match == MatchChild || base != c.Path {
			s.above[base] = true
		}
		for i := strings.LastIndexByte(base, '/'); i >= 0; i = strings.LastIndexByte(base, '/') {
			base = base[:i]
			if s.above[base] {
				break // and all above it
			}
			s.above[base] = true
		}
	}
	return s
}

// Covers reports whether a claim covers a path.
func (s Set) Covers(path string) bool {
	if s.exact[path] || s.CoversTree(path) {
		return true
	}
	path = strings.TrimSuffix(path, "/")
	i := strings.LastIndexByte(path, '/')
	return i >= 0 && i+1 < len(path) && s.child[path[:i]]
}

// CoversTree reports whether a claim covers a path and everything below it.
func (s Set) CoversTree(path string) bool {
	if s.prefix[path] {
		return true
	}
	for i := range len(path) {
		if path[i] == '/' && (s.prefix[path[:i+1]] || s.prefix[path[:i]]) {
			return true
		}
	}
	return false
}

// Reaches reports whether a claim covers a path or one below it.
func (s Set) Reaches(path string) bool {
	return s.Covers(path) || s.above[strings.TrimSuffix(path, "/")]
}
