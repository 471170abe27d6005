package chain

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files")

// parseDecls reads "a→b b"; "-" is none.
func parseDecls(line string) []Declaration {
	var decls []Declaration
	for _, field := range strings.Fields(line) {
		if field == "-" {
			continue
		}
		name, delegate, _ := strings.Cut(field, "→")
		decls = append(decls, Declaration{Name: name, Delegate: delegate})
	}
	return decls
}

func render(decls []Declaration) string {
	order, err := Order(decls)
	if err == nil {
		return "  " + strings.Join(order, " ") + "\n"
	}
	var out strings.Builder
	for _, line := range strings.Split(err.Error(), "\n") {
		fmt.Fprintf(&out, "  error: %s\n", line)
	}
	return out.String()
}

func TestOrderGolden(t *testing.T) {
	t.Parallel()
	const file = "testdata/order.txt"
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for line := range strings.Lines(string(want)) {
		switch {
		case strings.HasPrefix(line, "  "): // an earlier result
		case strings.TrimSpace(line) == "" || strings.HasPrefix(line, "#"):
			got.WriteString(line)
		default:
			got.WriteString(line)
			got.WriteString(render(parseDecls(line)))
		}
	}
	if *update {
		if err := os.WriteFile(file, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Errorf("%s (-want +got):\n%s", file, diff)
	}
}

// naiveOrder tries every permutation: an order is right if each stage delegates to
// the next one, and the last has no delegate.
func naiveOrder(decls []Declaration) []string {
	var found []string
	var try func(k int)
	perm := append([]Declaration(nil), decls...)
	try = func(k int) {
		if k == len(perm) {
			for i, d := range perm {
				want := ""
				if i+1 < len(perm) {
					want = perm[i+1].Name
				}
				if d.Delegate != want {
					return
				}
			}
			found = make([]string, len(perm))
			for i, d := range perm {
				found[i] = d.Name
			}
			return
		}
		for i := k; i < len(perm); i++ {
			perm[k], perm[i] = perm[i], perm[k]
			try(k + 1)
			perm[k], perm[i] = perm[i], perm[k]
		}
	}
	try(0)
	return found
}

// randomDecls are often a chain, often nearly one, and sometimes anything.
func randomDecls(r *rand.Rand) []Declaration {
	names := strings.Fields("a b c d e")[:1+r.IntN(5)]
	r.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	decls := make([]Declaration, len(names))
	for i, name := range names {
		decls[i].Name = name
		if i+1 < len(names) {
			decls[i].Delegate = names[i+1]
		}
	}
	for range r.IntN(4) {
		targets := append([]string{"", "x"}, names...)
		decls[r.IntN(len(decls))].Delegate = targets[r.IntN(len(targets))]
	}
	r.Shuffle(len(decls), func(i, j int) { decls[i], decls[j] = decls[j], decls[i] })
	return decls
}

func TestOrderAgreesWithEveryPermutation(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	valid := 0
	for range 20000 {
		decls := randomDecls(r)
		got, err := Order(decls)
		want := naiveOrder(decls)
		if (err == nil) != (want != nil) {
			t.Fatalf("Order(%v) = %v, %v; trying every order gives %v", decls, got, err, want)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("Order(%v) (-want +got):\n%s", decls, diff)
		}
		if err == nil {
			valid++
		}
	}
	if valid < 1000 || valid > 19000 {
		t.Errorf("%d of 20000 cases were chains: the cases do not test both sides", valid)
	}
}

func TestOrderErrorsNameTheStage(t *testing.T) {
	t.Parallel()
	_, err := Order(parseDecls("a→cor core b→b"))
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		t.Fatalf("%v joins no errors", err)
	}
	stages := map[string]string{}
	for _, e := range joined.Unwrap() {
		var oe *OrderError
		if !errors.As(e, &oe) {
			t.Fatalf("%v is no OrderError", e)
		}
		stages[oe.Stage] = oe.Unknown
	}
	if diff := cmp.Diff(map[string]string{"a": "cor", "b": ""}, stages); diff != "" {
		t.Errorf("stage and unknown delegate of each error (-want +got):\n%s", diff)
	}
}

func FuzzOrder(f *testing.F) {
	f.Add("a→b b→c c")
	f.Add("a→b b→a c→c d→zz")
	f.Add("→ → a→")
	f.Fuzz(func(t *testing.T, line string) {
		decls := parseDecls(line)
		if len(decls) > 50 {
			return
		}
		order, err := Order(decls)
		if err == nil && len(order) != len(decls) {
			t.Errorf("Order(%v) = %v, which is not every stage", decls, order)
		}
	})
}

func BenchmarkOrder(b *testing.B) {
	decls := parseDecls("extensions core→extensions aggregator→core")
	b.ReportAllocs()
	for b.Loop() {
		_, _ = Order(decls)
	}
}
