package grants

import (
	"strings"

	"github.com/catena-dev/catena/host/internal/chain"
)

// Table finds the stages that claim a path.
//
// Claims that need no grant cover only paths in normal form. A stage may be written with a library that
// takes /a/../b for /b, and would serve another path than the one that was authorized. The
// Kubernetes API has no such rule: its claims, which are granted by name, cover paths as they come.
type Table struct {
	all *chain.Table
	// odd is for paths that are not in normal form; nil if it is all.
	odd *chain.Table
}

// NewTable returns the table of stages, which are in chain order.
func NewTable(stages []chain.StageClaims) *Table {
	t := &Table{all: chain.NewTable(stages)}
	odd := make([]chain.StageClaims, len(stages))
	differs := false
	for i, st := range stages {
		odd[i].Name = st.Name
		for _, c := range st.Claims {
			if NeedsGrant(c) {
				odd[i].Claims = append(odd[i].Claims, c)
			}
		}
		differs = differs || len(odd[i].Claims) < len(st.Claims)
	}
	if differs {
		t.odd = chain.NewTable(odd)
	}
	return t
}

// First returns the index of the first stage whose claims cover path, -1 if there is none.
func (t *Table) First(path string) int { return t.of(path).First(path) }

// Next returns the index of the first stage downstream of the one with index after whose
// claims cover path, -1 if there is none.
func (t *Table) Next(path string, after int) int { return t.of(path).Next(path, after) }

func (t *Table) of(path string) *chain.Table {
	if t.odd == nil || isNormal(path) {
		return t.all
	}
	return t.odd
}

// isNormal reports whether a path, which is decoded, is the same for all who take it apart: it has
// no empty segment but the last, no backslash, which some take for a slash, and no segment . or .., not even
// one with parameters, as in /a/..;x/b.
func isNormal(path string) bool {
	if strings.IndexByte(path, '\\') >= 0 {
		return false
	}
	for {
		i := strings.IndexByte(path, '/')
		if i < 0 || i+1 == len(path) {
			return true
		}
		switch path = path[i+1:]; path[0] {
		case '/':
			return false
		case '.':
			segment, _, _ := strings.Cut(path, "/")
			if name, _, _ := strings.Cut(segment, ";"); name == "." || name == ".." {
				return false
			}
		}
	}
}

// Divided finds the stages that claim a path by one table if the path belongs to the Kubernetes API, and by another if not: what a stage claims that
// has never come up is not known, but for the paths that it is not granted.
type Divided struct{ Kubernetes, Others *Table }

// First is that of the table for the path.
func (d Divided) First(path string) int { return d.of(path).First(path) }

// Next is that of the table for the path.
func (d Divided) Next(path string, after int) int { return d.of(path).Next(path, after) }

func (d Divided) of(path string) *Table {
	if isKubernetes(path) {
		return d.Kubernetes
	}
	return d.Others
}
