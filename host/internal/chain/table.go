package chain

import (
	"slices"
	"strings"

	"github.com/catena-dev/catena/sdk/claim"
)

// StageClaims are the claims of one stage. A stage whose claims are not known,
// because it is not up yet, is to be given the prefix /: what it might have owned
// counts as its own.
type StageClaims struct {
	Name   string
	Claims []claim.Claim
}

// Table finds the stages that claim a path. It never changes, and may be used by any
// number of goroutines.
type Table struct {
	root node
}

// node is one segment of the tree of claimed paths. Its lists hold indexes of
// stages, ascending, each once.
type node struct {
	// segment and first are those of the first child, children the others: most nodes have one at most, and a map takes
	// more than all the rest.
	segment  string
	first    *node
	children map[string]*node
	at       []int // the path ends with this segment
	below    []int // a slash follows this segment, and anything after it
	child    []int // one more segment follows, and a slash at most
}

// NewTable returns the table of stages, which are in chain order.
func NewTable(stages []StageClaims) *Table {
	t := &Table{}
	for i, s := range stages {
		for _, c := range s.Claims {
			if c.Validate() == nil {
				t.root.insert(c, i)
			}
		}
	}
	return t
}

// insert adds the claim of stage i. Stages come in ascending order.
func (n *node) insert(c claim.Claim, i int) {
	above, slash := strings.CutSuffix(c.Path, "/")
	switch {
	case c.Match == claim.MatchExact:
		n = n.descend(c.Path)
		n.at = appendOnce(n.at, i)
	case c.Match == claim.MatchChild:
		n = n.descend(above)
		n.child = appendOnce(n.child, i)
	default:
		n = n.descend(above)
		n.below = appendOnce(n.below, i)
		if !slash || above == "" {
			n.at = appendOnce(n.at, i)
		}
	}
}

// descend returns the node of path, which is empty or begins with a slash.
func (n *node) descend(path string) *node {
	for path != "" {
		segment, rest := cut(path)
		next := n.next(segment)
		if next == nil {
			next = &node{}
			n.add(segment, next)
		}
		n, path = next, rest
	}
	return n
}

// next returns the child of a segment, nil if there is none.
func (n *node) next(segment string) *node {
	if n.first == nil || n.segment == segment {
		return n.first
	}
	return n.children[segment]
}

func (n *node) add(segment string, child *node) {
	if n.first == nil {
		n.segment, n.first = segment, child
		return
	}
	if n.children == nil {
		n.children = map[string]*node{}
	}
	n.children[segment] = child
}

// cut splits a path that begins with a slash into its first segment and the rest,
// which is empty or begins with a slash.
func cut(path string) (segment, rest string) {
	path = path[1:]
	if i := strings.IndexByte(path, '/'); i >= 0 {
		return path[:i], path[i:]
	}
	return path, ""
}

func appendOnce(list []int, i int) []int {
	if slices.Contains(list, i) {
		return list
	}
	return append(list, i)
}

// First returns the index of the first stage whose claims cover path, -1 if there
// is none.
func (t *Table) First(path string) int { return t.Next(path, -1) }

// Next returns the index of the first stage downstream of the one with index after
// whose claims cover path, -1 if there is none.
func (t *Table) Next(path string, after int) int {
	best := -1
	n := &t.root
	if path == "" || path[0] != '/' {
		return nearest(n.at, after, best)
	}
	for path != "" {
		segment, rest := cut(path)
		best = nearest(n.below, after, best)
		if segment != "" && (rest == "" || rest == "/") {
			best = nearest(n.child, after, best)
		}
		if n = n.next(segment); n == nil {
			return best
		}
		path = rest
	}
	return nearest(n.at, after, best)
}

// nearest returns the lower of best and the lowest element of list above after.
func nearest(list []int, after, best int) int {
	for _, i := range list {
		if i > after {
			if best < 0 || i < best {
				return i
			}
			return best
		}
	}
	return best
}
