package chain

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/catena-dev/catena/sdk/claim"
)

// naiveNext is the second implementation of Table.Next: each claim in turn.
func naiveNext(stages []StageClaims, p string, after int) int {
	for i, s := range stages {
		for _, c := range s.Claims {
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
		claim   claim.Claim
		yes, no string
	}{
		{claim.Exact("/a"), "/a", "/ /a/ /a/b /ab a"},
		{claim.Exact("/a/"), "/a/", "/a /a/b /a//"},
		{claim.Exact("/"), "/", "/a // *"},
		{claim.Prefix("/a"), "/a /a/ /a/b /a/b/c /a//", "/ /ab /b/a a"},
		{claim.Prefix("/a/"), "/a/ /a/b /a/b/c", "/a /ab"},
		{claim.Prefix("/"), "/ /a /a/b // * a", ""},
		{claim.Child("/a"), "/a/b /a/b/", "/a /a/ /a/b/c /a// /a/b// /ab"},
		{claim.Child("/a/"), "/a/b /a/b/", "/a /a/ /a/b/c"},
		{claim.Child("/"), "/a /a/", "/ // /a/b a *"},
		{claim.Prefix("a"), "", "a /a a/b"},
		{claim.Prefix(""), "", "/ /a"},
		{claim.Claim{Path: "/a"}, "", "/a"},
		{claim.Claim{Path: "/a", Match: 4}, "", "/a /a/b"},
	} {
		table := NewTable([]StageClaims{{Name: "s", Claims: []claim.Claim{tc.claim}}})
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
	table := NewTable([]StageClaims{
		{Name: "middleware", Claims: []claim.Claim{claim.Prefix("/")}},
		{Name: "core", Claims: []claim.Claim{claim.Prefix("/api"), claim.Exact("/apis")}},
		{Name: "silent"},
		{Name: "extensions", Claims: []claim.Claim{claim.Child("/apis"), claim.Prefix("/apis"), claim.Prefix("/apis")}},
	})
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
	if got := NewTable(nil).First("/"); got != -1 {
		t.Errorf("First of an empty table = %d, want -1", got)
	}
}

// randomPath is short and of few letters, so that claims and paths meet.
func randomPath(r *rand.Rand) string {
	letters := []string{"/", "a", "b", "/a", "/a", "/b"}
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
		stages := make([]StageClaims, r.IntN(5))
		for i := range stages {
			for range r.IntN(4) {
				stages[i].Claims = append(stages[i].Claims, claim.Claim{Path: randomPath(r), Match: claim.Match(r.IntN(5))})
			}
		}
		table := NewTable(stages)
		for range 20 {
			p, after := randomPath(r), r.IntN(5)-1
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
	f.Fuzz(func(t *testing.T, p1 string, m1 byte, p2 string, m2 byte, p string) {
		stages := []StageClaims{
			{Claims: []claim.Claim{{Path: p1, Match: claim.Match(m1)}}},
			{Claims: []claim.Claim{{Path: p2, Match: claim.Match(m2)}}},
		}
		table := NewTable(stages)
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
	var aggregated, core []claim.Claim
	for i := range 100 {
		aggregated = append(aggregated, claim.Prefix(fmt.Sprintf("/apis/group%d.example.com/v1", i)))
	}
	for i := range 95 {
		core = append(core, claim.Prefix(fmt.Sprintf("/apis/group%d.k8s.io", i)))
	}
	core = append(core, claim.Prefix("/api"), claim.Exact("/version"), claim.Prefix("/logs"))
	return NewTable([]StageClaims{
		{Name: "aggregator", Claims: aggregated},
		{Name: "core", Claims: core},
		{Name: "extensions", Claims: []claim.Claim{claim.Child("/apis"), claim.Prefix("/apis")}},
	})
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

func BenchmarkOrder(b *testing.B) {
	decls := parseDecls("extensions core→extensions aggregator→core")
	b.ReportAllocs()
	for b.Loop() {
		_, _ = Order(decls)
	}
}
