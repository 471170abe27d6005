package grants

import (
	"slices"
	"strings"

	"github.com/catena-dev/catena/host/internal/chain"
	"github.com/catena-dev/catena/sdk/claim"
)

// Table finds the stages that claim a path.
//
// Claims that no grant names cover only paths in normal form. A stage may be written with a library that
// takes /a/../b for /b, and would serve another path than the one that was authorized. The
// Kubernetes API has no such rule: claims that need a grant, or have one, as those of the aggregator for the groups that it passes on, cover
// paths as they come.
type Table struct {
	all *chain.Table
	// odd is for paths that are not in normal form; nil if it is all.
	odd *chain.Table
}

// NewTable returns the table of stages, which are in chain order, each with what it is granted.
func NewTable(stages []chain.StageClaims, granted []Grants) *Table {
	t := &Table{all: chain.NewTable(stages)}
	odd := make([]chain.StageClaims, len(stages))
	differs := false
	for i, st := range stages {
		odd[i] = chain.StageClaims{Name: st.Name, Claims: granted[i].asTheyCome(st.Claims)}
		differs = differs || len(odd[i].Claims) < len(st.Claims)
	}
	if differs {
		t.odd = chain.NewTable(odd)
	}
	return t
}

// Covering are those claims of a stage that may cover a path.
func (g Grants) Covering(path string, claims []claim.Claim) []claim.Claim {
	if isNormal(path) {
		return claims
	}
	return g.asTheyCome(claims)
}

// asTheyCome are the claims that cover paths which are not in normal form.
func (g Grants) asTheyCome(claims []claim.Claim) (all []claim.Claim) {
	for _, c := range claims {
		if NeedsGrant(c) || slices.ContainsFunc(g.Claims, func(granted claim.Claim) bool { return granted.Contains(c) }) {
			all = append(all, c)
		}
	}
	return all
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
