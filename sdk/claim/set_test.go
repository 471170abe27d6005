package claim

import (
	"math/rand/v2"
	"testing"
)

// A set answers as its claims do.
func TestSet(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	answers := map[string]int{}
	for range 5000 {
		var claims []Claim
		for range random.IntN(4) {
			claims = append(claims, Claim{Path: randomPath(random.Uint64N(20)), Match: Match(random.IntN(5))})
		}
		s, path := NewSet(claims...), randomPath(random.Uint64N(256))
		var covers, tree, reaches bool
		for _, c := range claims {
			covers = covers || c.Covers(path)
			tree = tree || c.Contains(Prefix(path))
			reaches = reaches || Prefix(path).Contains(c) || Prefix(path).Contains(Exact(c.Path)) && c.Validate() == nil
		}
		reaches = reaches || covers
		for what, both := range map[string][2]bool{
			"Covers": {s.Covers(path), covers}, "CoversTree": {s.CoversTree(path), tree}, "Reaches": {s.Reaches(path), reaches},
		} {
			if both[0] != both[1] {
				t.Fatalf("%v: %s(%q) is %t, want %t", claims, what, path, both[0], both[1])
			}
			if both[0] {
				answers[what]++
			}
		}
	}
	for _, what := range []string{"Covers", "CoversTree", "Reaches"} {
		if answers[what] < 100 {
			t.Errorf("%s: true only %d times", what, answers[what])
		}
	}
}
