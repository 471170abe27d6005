package grants

import (
	"slices"
	"strings"

	"github.com/catena-dev/catena/sdk/claim"
)

// Stage is what a stage claims, and what it is granted.
type Stage struct {
	Name   string
	Claims []claim.Claim
	Grants Grants
	// Unfinished reports whether the stage has never known all that it serves: each API group may be its own.
	Unfinished bool
}

// Table finds the stages that claim a path.
//
// Claims that no grant names cover only paths in normal form. A stage may be written with a library that takes /a/../b
// for /b, and would serve another path than the one that was authorized. The Kubernetes API has no such rule: claims
// that need a grant, or have one, as those of the aggregator for the groups that it passes on, cover paths as they
// come.
//
// Nor do they cover what a stage downstream has by name: by a claim that has a grant, as those of extensions and the
// aggregator for custom resources and aggregated APIs, and is not one of everything or of all groups.
type Table struct {
	all *claim.Table
	// granted has the claims that grants name; nil if those are all. named has those of them that give paths a name.
	granted, named *claim.Table
}

// NewTable returns the table of stages, which are in chain order.
func NewTable(stages []Stage) *Table {
	var all, granted, named [][]claim.Claim
	differs := false
	for _, st := range stages {
		of := st.granted()
		differs = differs || len(of) < len(st.Claims)
		all = append(all, st.Claims)
		granted = append(granted, of)
		named = append(named, st.names(of))
	}
	t := &Table{all: claim.NewTable(all...)}
	if differs {
		t.granted, t.named = claim.NewTable(granted...), claim.NewTable(named...)
	}
	return t
}

// granted are the claims that the stage makes by a grant.
func (s Stage) granted() (all []claim.Claim) {
	if slices.Contains(s.Grants.Claims, claim.Prefix("/")) {
		return s.Claims
	}
	for _, c := range s.Claims {
		if s.isGranted(c) {
			all = append(all, c)
		}
	}
	return all
}

func (s Stage) isGranted(c claim.Claim) bool {
	return slices.ContainsFunc(s.Grants.Claims, func(granted claim.Claim) bool { return granted.Contains(c) })
}

// names are those of its granted claims that give paths a name.
func (s Stage) names(granted []claim.Claim) (all []claim.Claim) {
	for _, c := range granted {
		switch {
		case !isEverything(c):
			all = append(all, c)
		case s.Unfinished && c.Match&^claim.MatchPattern == claim.MatchPrefix:
			all = append(all, claim.Prefix("/apis/"))
		}
	}
	return all
}

// isEverything reports whether a claim is of all paths, or of all API groups, whatever their names are.
func isEverything(c claim.Claim) bool {
	base := strings.TrimSuffix(c.Path, "/")
	for c.IsPattern() && strings.HasSuffix(base, "/*") {
		base = strings.TrimSuffix(base, "/*")
	}
	return base == "" || base == "/apis"
}

// First returns the index of the first stage whose claims cover path, or -1.
func (t *Table) First(path string) int { return t.Next(path, -1) }

// Next returns the index of the first stage downstream of the one with index after whose
// claims cover path, or -1.
func (t *Table) Next(path string, after int) int {
	switch {
	case t.granted == nil:
		return t.all.Next(path, after)
	case !isNormal(path):
		return t.granted.Next(path, after)
	}
	for {
		i := t.all.Next(path, after)
		if i < 0 || t.named.Next(path, i) < 0 || t.granted.Next(path, i-1) == i {
			return i
		}
		after = i
	}
}

// Covering are those claims of a stage that may cover a path.
func Covering(stages []Stage, i int, path string) []claim.Claim {
	named := slices.ContainsFunc(stages[i+1:], func(st Stage) bool {
		return claim.NewSet(st.names(st.granted())...).Covers(path)
	})
	if isNormal(path) && !named {
		return stages[i].Claims
	}
	return stages[i].granted()
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

// Divided finds the stages that claim a path by one table if the path belongs to the Kubernetes API, and by another if
// not: what a stage claims that has never come up is not known, but for the paths that it is not granted.
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
