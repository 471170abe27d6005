package claim

import (
	"slices"
	"strings"
)

// Table finds which of several lists of claims cover a path. It never changes, and may
// be used by any number of goroutines.
type Table struct {
	root node
}

// node is one segment of the tree of claimed paths. Its lists hold the numbers of lists
// of claims, ascending, each once.
type node struct {
	// segment and first are those of the first child, children the others: most nodes have one at most, and a map takes
	// more than all the rest. any is the child of a segment that stands for any one.
	segment  string
	first    *node
	children map[string]*node
	any      *node
	at       []int // the path ends with this segment
	below    []int // a slash follows this segment, and anything after it
	child    []int // one more segment follows, and a slash at most
}

// NewTable returns the table of lists of claims. Those that are not valid are left out.
func NewTable(lists ...[]Claim) *Table {
	t := &Table{}
	for i, list := range lists {
		for _, c := range list {
			if c.Validate() == nil {
				t.root.insert(c, i)
			}
		}
	}
	return t
}

// insert adds a claim of list i. Lists come in ascending order.
func (n *node) insert(c Claim, i int) {
	above := c.above()
	for rest := above; rest != ""; {
		var text string
		text, rest = cut(rest)
		n = n.descend(c.segment(text))
	}
	switch c.base() {
	case MatchExact:
		n.at = appendOnce(n.at, i)
	case MatchChild:
		n.child = appendOnce(n.child, i)
	default:
		n.below = appendOnce(n.below, i)
		if above == c.Path || above == "" {
			n.at = appendOnce(n.at, i)
		}
	}
}

// descend returns the child of a segment, which it makes if it is missing.
func (n *node) descend(s segment) *node {
	next := n.any
	if !s.any {
		next = n.next(s.text)
	}
	if next != nil {
		return next
	}
	next = &node{}
	switch {
	case s.any:
		n.any = next
	case n.first == nil:
		n.segment, n.first = s.text, next
	case n.children == nil:
		n.children = map[string]*node{s.text: next}
	default:
		n.children[s.text] = next
	}
	return next
}

// next returns the child of the text of a segment, or nil.
func (n *node) next(text string) *node {
	if n.first == nil || n.segment == text {
		return n.first
	}
	return n.children[text]
}

func appendOnce(list []int, i int) []int {
	if slices.Contains(list, i) {
		return list
	}
	return append(list, i)
}

// First returns the number of the first list that covers path, or -1.
func (t *Table) First(path string) int { return t.Next(path, -1) }

// Next returns the number of the first list behind the one with the number after that
// covers path, or -1.
func (t *Table) Next(path string, after int) int {
	if path == "" || path[0] != '/' {
		return nearest(t.root.at, after, -1)
	}
	return t.root.find(path, after, -1)
}

// find returns the lower of best and the first list after that one which covers what of a
// path follows the node's segment.
func (n *node) find(path string, after, best int) int {
	for path != "" {
		text, rest := cut(path)
		best = nearest(n.below, after, best)
		if text != "" {
			if rest == "" || rest == "/" {
				best = nearest(n.child, after, best)
			}
			if n.any != nil {
				best = n.any.find(rest, after, best)
			}
		}
		if n = n.next(text); n == nil {
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

// tree reports whether a claim covers what of a path follows the node's segment, and
// everything below it. The path has no slash at the end, or had one that is cut off.
func (n *node) tree(path string, slash bool) bool {
	if path == "" {
		return len(n.below) > 0 && (slash || len(n.at) > 0)
	}
	text, rest := cut(path)
	next := n.next(text)
	return len(n.below) > 0 || text != "" && n.any != nil && n.any.tree(rest, slash) || next != nil && next.tree(rest, slash)
}

// reaches reports whether a claim covers a path below that which follows the node's segment.
func (n *node) reaches(path string) bool {
	if path == "" {
		return len(n.below) > 0 || len(n.child) > 0 || n.first != nil || n.any != nil
	}
	text, rest := cut(path)
	next := n.next(text)
	return text != "" && n.any != nil && n.any.reaches(rest) || next != nil && next.reaches(rest)
}

// Set is claims in a form in which paths are quick to find. The zero value is that of no claims.
type Set struct{ table Table }

// NewSet returns the set of some claims. Those that are not valid are left out.
func NewSet(claims ...Claim) Set { return Set{*NewTable(claims)} }

// Covers reports whether a claim covers a path.
func (s Set) Covers(path string) bool { return s.table.First(path) >= 0 }

// CoversTree reports whether claims cover a path and everything below it.
func (s Set) CoversTree(path string) bool {
	above, slash := strings.CutSuffix(path, "/")
	return strings.HasPrefix(path, "/") && s.table.root.tree(above, slash)
}

// Reaches reports whether a claim covers a path or one below it.
func (s Set) Reaches(path string) bool {
	return s.Covers(path) || strings.HasPrefix(path, "/") && s.table.root.reaches(strings.TrimSuffix(path, "/"))
}
