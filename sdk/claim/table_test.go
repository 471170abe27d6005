package claim

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// naiveNext is the second implementation of Table.Next: each claim in turn.
func naiveNext(stages [][]Claim, p string, after int) int {
	for i, s := range stages {
		for _, c := range s {
			if i > after && c.Covers(p) {
				return i
			}
		}
	}
	return -1
}

func TestTableCovers(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		claim   Claim
		yes, no string
	}{
		{Exact("/a"), "/a", "/ /a/ /a/b /ab a"},
		{Exact("/a/"), "/a/", "/a /a/b /a//"},
		{Exact("/"), "/", "/a // *"},
		{Prefix("/a"), "/a /a/ /a/b /a/b/c /a//", "/ /ab /b/a a"},
		{Prefix("/a/"), "/a/ /a/b /a/b/c", "/a /ab"},
		{Prefix("/"), "/ /a /a/b // * a", ""},
		{Child("/a"), "/a/b /a/b/", "/a /a/ /a/b/c /a// /a/b// /ab"},
		{Child("/a/"), "/a/b /a/b/", "/a /a/ /a/b/c"},
		{Child("/"), "/a /a/", "/ // /a/b a *"},
		{Exact("/*/b"), "/a/b /*/b", "//b /b /a/b/ /a/b/c /a/a/b"},
		{Prefix("/a/*/b"), "/a/x/b /a/x/b/ /a/x/b/c", "/a//b /a/x /a/x/bc /b/x/b"},
		{Child("/*/a"), "/x/a/y /x/a/y/", "/x/a /x/a/ /x/a/y/z //a/y"},
		{Prefix("a"), "", "a /a a/b"},
		{Prefix(""), "", "/ /a"},
		{Claim{Path: "/a"}, "", "/a"},
		{Claim{Path: "/a", Match: 4}, "", "/a /a/b"},
	} {
		table := NewTable([]Claim{tc.claim})
		for _, p := range strings.Fields(tc.yes) {
			if table.First(p) != 0 {
				t.Errorf("%v does not cover %q", tc.claim, p)
			}
		}
		for _, p := range strings.Fields(tc.no) {
			if table.First(p) != -1 {
				t.Errorf("%v covers %q", tc.claim, p)
			}
		}
		if invalid := tc.yes == ""; (tc.claim.Validate() != nil) != invalid {
			t.Errorf("Validate(%v) = %v", tc.claim, tc.claim.Validate())
		}
	}
}

func TestTableWalksTheChain(t *testing.T) {
	t.Parallel()
	table := NewTable(
		[]Claim{Prefix("/")},
		[]Claim{Prefix("/api"), Exact("/apis")},
		nil,
		[]Claim{Child("/apis"), Prefix("/apis"), Prefix("/apis")},
	)
	for p, want := range map[string]string{
		"/api/v1/pods": "0 1", "/apis": "0 1 3", "/apis/a": "0 3", "/other": "0",
	} {
		var got []string
		for i := table.First(p); i >= 0; i = table.Next(p, i) {
			got = append(got, fmt.Sprint(i))
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s goes to stages %v, want %s", p, got, want)
		}
	}
	if got := table.Next("/api", 100); got != -1 {
		t.Errorf("Next beyond the tail = %d, want -1", got)
	}
	if got := NewTable().First("/"); got != -1 {
		t.Errorf("First of an empty table = %d, want -1", got)
	}
}

// shortPath is one of few letters, so that claims and paths meet.
func shortPath(r *rand.Rand) string {
	letters := []string{"/", "a", "b", "/a", "/a", "/b", "/*", "/*"}
	var p strings.Builder
	if r.IntN(10) > 0 {
		p.WriteString("/")
	}
	for range r.IntN(4) {
		p.WriteString(letters[r.IntN(len(letters))])
	}
	return p.String()
}

func TestTableAgreesWithNaive(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	hits := 0
	for range 5000 {
		stages := make([][]Claim, r.IntN(5))
		for i := range stages {
			for range r.IntN(4) {
				stages[i] = append(stages[i], Claim{Path: shortPath(r), Match: Match(r.IntN(8))})
			}
		}
		table := NewTable(stages...)
		for range 20 {
			p, after := shortPath(r), r.IntN(5)-1
			got, want := table.Next(p, after), naiveNext(stages, p, after)
			if got != want {
				t.Fatalf("%v: Next(%q, %d) = %d, want %d", stages, p, after, got, want)
			}
			if want >= 0 {
				hits++
			}
		}
	}
	if hits < 5000 {
		t.Errorf("only %d of 100000 lookups found a stage: the cases do not test both sides", hits)
	}
}

func FuzzTable(f *testing.F) {
	f.Add("/api", byte(2), "/apis", byte(3), "/apis/apps/v1")
	f.Add("/", byte(2), "/a/", byte(1), "*")
	f.Add("/*/b", byte(6), "/a/*", byte(7), "/a/b/c")
	f.Fuzz(func(t *testing.T, p1 string, m1 byte, p2 string, m2 byte, p string) {
		stages := [][]Claim{{{Path: p1, Match: Match(m1)}}, {{Path: p2, Match: Match(m2)}}}
		table := NewTable(stages...)
		for after := -1; after < 2; after++ {
			if got, want := table.Next(p, after), naiveNext(stages, p, after); got != want {
				t.Errorf("%v: Next(%q, %d) = %d, want %d", stages, p, after, got, want)
			}
		}
	})
}

// kubernetesTable has about 200 claims, as a chain with the built-in groups and
// a hundred group versions of others has.
func kubernetesTable() *Table {
	var aggregated, core []Claim
	for i := range 100 {
		aggregated = append(aggregated, Prefix(fmt.Sprintf("/apis/group%d.example.com/v1", i)))
	}
	for i := range 95 {
		core = append(core, Prefix(fmt.Sprintf("/apis/group%d.k8s.io", i)))
	}
	core = append(core, Prefix("/api"), Exact("/version"), Prefix("/logs"))
	return NewTable(aggregated, core, []Claim{Child("/apis"), Prefix("/apis")})
}

var lookups = []string{
	"/api/v1/namespaces/kube-system/pods/coredns-abc/log",
	"/apis/group50.k8s.io/v1/namespaces/default/deployments/web/status",
	"/apis/group99.example.com/v1/namespaces/default/widgets/first",
	"/apis/stable.example.com/v1/crontabs",
	"/version",
	"/nowhere/at/all",
}

func TestLookupAllocatesNothing(t *testing.T) {
	table := kubernetesTable()
	if got := testing.AllocsPerRun(100, func() {
		for _, p := range lookups {
			table.Next(p, table.First(p))
		}
	}); got != 0 {
		t.Errorf("%v allocations", got)
	}
}

func BenchmarkFirst(b *testing.B) {
	table := kubernetesTable()
	for _, p := range lookups {
		b.Run(strings.ReplaceAll(strings.TrimPrefix(p, "/"), "/", "_"), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				table.First(p)
			}
		})
	}
}

// A set answers as its claims do.
func TestSet(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	answers := map[string]int{}
	for range 5000 {
		var claims []Claim
		for range random.IntN(4) {
			claims = append(claims, randomClaim(randomPath(random.Uint64N(64)), uint8(random.Uint32())))
			if random.IntN(10) == 0 {
				claims[0].Match = Match(random.IntN(10))
			}
		}
		s, path := NewSet(claims...), randomPath(random.Uint64N(256))
		var covers, tree, below, reaches bool
		for _, c := range claims {
			covers = covers || c.Covers(path)
			tree = tree || c.Contains(literal(path))
			below = below || c.Contains(literal(path+"/"))
			reaches = reaches || c.Meets(literal(path))
		}
		tree = tree || covers && below
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
