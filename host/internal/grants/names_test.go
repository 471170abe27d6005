package grants

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/catena-dev/catena/sdk/claim"
)

// world is a chain whose stages come to claim what they like, with the groups that the server's own objects give to some of them.
type world struct {
	stages []Stage
	// servers are the indexes of those of Kubernetes, which may claim everything and claim all groups; owners has which of them serves
	// a group version.
	servers []int
	owners  map[string]int
}

var groupVersions = []string{"a.test/v1", "a.test/v2", "b.test/v1", "c.d.test/v1"}

// pick returns one of some.
func pick[T any](random *rand.Rand, of ...T) T { return of[random.IntN(len(of))] }

func newWorld(random *rand.Rand) *world {
	w := &world{owners: map[string]int{}}
	for i := range 2 + random.IntN(5) {
		st := Stage{Name: fmt.Sprint("s", i)}
		switch random.IntN(3) {
		case 0:
			st.Grants.Claims = []claim.Claim{claim.Prefix("/")}
			st.Claims = []claim.Claim{claim.Exact("/apis"), claim.Prefix("/apis/")}
			st.Unfinished = random.IntN(4) == 0
			w.servers = append(w.servers, i)
		case 1:
			st.Grants.Claims = []claim.Claim{anyClaim(random)}
		}
		w.stages = append(w.stages, st)
	}
	return w
}

func anyClaim(random *rand.Rand) claim.Claim {
	group, version, _ := strings.Cut(pick(random, groupVersions...), "/")
	return pick(random,
		claim.Prefix("/apis/"+group), claim.Prefix("/apis/"+group+"/"), claim.Prefix("/apis/"+group+"/"+version), claim.Child("/apis/"+group),
		claim.Exact("/apis/"+group+"/"+version), claim.Exact("/apis/"+group+"/"+version+"/things"), claim.Prefix("/hello"), claim.Prefix("/hello/x"),
		claim.Prefix("/apis/"+group+"/*/things"), claim.Exact("/apis/"+group+"/*/things"), claim.Child("/apis/"+group+"/*"), claim.Prefix("/hello/*"),
		claim.Prefix("/apis/*/"+version))
}

// step lets something happen: a stage claims something or gives it up, a custom resource or an aggregated API comes or goes, a server comes
// to know all of its own.
func (w *world) step(random *rand.Rand) string {
	i := random.IntN(len(w.stages))
	if !slices.Contains(w.servers, i) {
		st := &w.stages[i]
		if len(st.Claims) > 0 && random.IntN(3) == 0 {
			st.Claims = slices.Delete(slices.Clone(st.Claims), 0, 1)
			return st.Name + " gives up a claim"
		}
		c := anyClaim(random)
		st.Claims = append(slices.Clone(st.Claims), c)
		return fmt.Sprintf("%s claims %s", st.Name, c)
	}
	gv := pick(random, groupVersions...)
	owner, owned := w.owners[gv]
	switch {
	case owned && owner == i:
		delete(w.owners, gv)
	case !owned:
		w.owners[gv] = i
	}
	st := &w.stages[i]
	st.Unfinished = st.Unfinished && random.IntN(3) > 0
	st.Claims = []claim.Claim{claim.Exact("/apis"), claim.Prefix("/apis/")}
	for gv, owner := range w.owners {
		if owner == i && !st.Unfinished { // it says so when it knows
			st.Claims = append(st.Claims, claim.Prefix("/apis/"+gv))
		}
	}
	return fmt.Sprintf("%s has %v, unfinished %t", st.Name, w.owners, st.Unfinished)
}

// check compares the stages that the table has asked for the objects of a group version, up to its owner, with those that have a claim by a
// grant: what any other claims makes no difference.
func (w *world) check(t *Table) error {
	for gv, owner := range w.owners {
		for _, below := range []string{"", "/", "/things", "/namespaces/x/things/y"} {
			path := "/apis/" + gv + below
			var asked, want []int
			for i := t.First(path); i >= 0 && i <= owner; i = t.Next(path, i) {
				asked = append(asked, i)
			}
			for i, st := range w.stages[:owner+1] {
				if slices.ContainsFunc(st.Claims, func(c claim.Claim) bool {
					return c.Covers(path) && slices.ContainsFunc(st.Grants.Claims, func(granted claim.Claim) bool { return granted.Contains(c) })
				}) {
					want = append(want, i)
				}
			}
			if !slices.Equal(asked, want) || asked[len(asked)-1] != owner {
				return fmt.Errorf("%s, of s%d: %v are asked, want %v", path, owner, asked, want)
			}
		}
	}
	return nil
}

// checkFree compares the stages that are asked for a path that nobody has by name with all that claim it.
func (w *world) checkFree(t *Table) error {
	const path = "/hello/x/y"
	var asked, want []int
	for i := t.First(path); i >= 0; i = t.Next(path, i) {
		asked = append(asked, i)
	}
	for i, st := range w.stages {
		if slices.ContainsFunc(st.Claims, func(c claim.Claim) bool { return c.Covers(path) }) {
			want = append(want, i)
		}
		if slices.ContainsFunc(st.granted(), func(c claim.Claim) bool { return c.Covers(path) }) {
			return nil // it has a name
		}
	}
	if !slices.Equal(asked, want) {
		return fmt.Errorf("%s: %v are asked, want %v", path, asked, want)
	}
	return nil
}

// An object of the API is never served by a stage without a grant by name, and never absent because of one, whoever comes first.
func TestNamesOfOthers(t *testing.T) {
	t.Parallel()
	for seed := range uint64(3000) {
		random := rand.New(rand.NewPCG(seed, 1))
		w := newWorld(random)
		var happened []string
		for range 20 {
			happened = append(happened, w.step(random))
			table := NewTable(w.stages)
			for _, err := range []error{w.check(table), w.checkFree(table)} {
				if err != nil {
					t.Fatalf("seed %d: %v, after\n%s\n%+v", seed, err, strings.Join(happened, "\n"), w.stages)
				}
			}
			w.checkVoids(t, table)
		}
	}
}

// checkVoids finds a path for each claim that does not count, of which the stage is not asked for.
func (w *world) checkVoids(t *testing.T, table *Table) {
	t.Helper()
	for _, v := range Voids(w.stages, 100) {
		i := slices.IndexFunc(w.stages, func(st Stage) bool { return st.Name == v.Stage })
		found := false
		for _, gv := range append([]string{"b.test/v2", "c.d.test/v2"}, groupVersions...) {
			for _, path := range []string{"/apis/" + gv, "/apis/" + gv + "/things", "/apis/" + gv + "/things/", "/hello", "/hello/x"} {
				covered := v.Claim.Covers(path) && v.Name.Covers(path)
				found = found || covered
				if granted := slices.ContainsFunc(w.stages[i].granted(), func(c claim.Claim) bool { return c.Covers(path) }); covered && !granted && table.Next(path, i-1) == i {
					t.Fatalf("%+v: %s is asked for %s", v, v.Stage, path)
				}
			}
		}
		if !found && v.Claim.Match != claim.MatchExact && v.Name.Match != claim.MatchExact {
			t.Fatalf("%+v: no path is in both", v)
		}
	}
}

// What is not known yet gives no name that people are told of, and of each stage the first few are told.
func TestVoids(t *testing.T) {
	t.Parallel()
	stages := []Stage{
		{Name: "early", Claims: parse(t, "/apis/a.test/**", "/apis/b.test/v1/things", "/apis/c.test/**", "/hello")},
		{Name: "asked", Claims: parse(t, "/apis/a.test/**"), Grants: Grants{Claims: parse(t, "/apis/a.test/**")}},
		{Name: "extensions", Claims: parse(t, "/apis/", "/apis/**", "/apis/a.test/v1/**", "/apis/b.test/v1/**"), Grants: All(), Unfinished: true},
		{Name: "late", Claims: parse(t, "/apis/a.test/**")},
	}
	got := fmt.Sprintf("%+v", Voids(stages, 10))
	if want := "[/apis/a.test/** without a grant, where stage asked has /apis/a.test/** by name " +
		"/apis/b.test/v1/things without a grant, where stage extensions has /apis/b.test/v1/** by name]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := Voids(stages, 1); len(got) != 1 {
		t.Errorf("%v", got)
	}
}
