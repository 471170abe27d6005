package grants

import (
	"fmt"
	"slices"
	"strings"

	"github.com/catena-dev/catena/sdk/claim"
)

// Void is a claim of a stage that does not count where another stage has a name below it, or as a whole.
type Void struct {
	Stage string
	Claim claim.Claim
	// Of is a stage with such a name, Name the claim that gives it.
	Of   string
	Name claim.Claim
}

// String says which claim it is, and why it does not count.
func (v Void) String() string {
	return fmt.Sprintf("%s without a grant, where stage %s has %s by name", v.Claim, v.Of, v.Name)
}

// Voids returns the claims that do not count since a stage downstream has what they cover by name, at most that many of
// each stage. What is to be found out yet gives no name here.
func Voids(stages []Stage, most int) []Void {
	var voids []Void
	below, others := make([][]claim.Claim, len(stages)), make([][]claim.Claim, len(stages))
	for i, st := range stages {
		granted := st.granted()
		st.Unfinished = false
		below[i] = st.names(granted)
		if len(granted) < len(st.Claims) {
			others[i] = slices.DeleteFunc(slices.Clone(st.Claims), st.isGranted)
		}
	}
	for i, st := range stages {
		if len(others[i]) == 0 {
			continue
		}
		names, found := claim.NewSet(slices.Concat(below[i+1:]...)...), 0
		for _, c := range others[i] {
			if found == most {
				break
			}
			if !meets(names, c) {
				continue
			}
			for j := i + 1; j < len(stages); j++ {
				if k := slices.IndexFunc(below[j], func(name claim.Claim) bool { return name.Meets(c) }); k >= 0 {
					voids = append(voids, Void{st.Name, c, stages[j].Name, below[j][k]})
					found++
					break
				}
			}
		}
	}
	return voids
}

// meets reports whether names and a claim may have a path in common: those that have none are found quickly.
func meets(names claim.Set, c claim.Claim) bool {
	if c.Match == claim.MatchExact {
		return names.Covers(c.Path)
	}
	above := c.Path
	if c.IsPattern() {
		above, _, _ = strings.Cut(above+"/", "/*/")
	}
	return names.Reaches(strings.TrimSuffix(above, "/"))
}
