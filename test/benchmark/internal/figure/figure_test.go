package figure

import (
	"encoding/json"
	"strings"
	"testing"
)

// samples is a set with the samples of one quantity.
func samples(more bool, a, b []float64) *Set {
	s := new(Set)
	q := Quantity{Row: "GET", Name: "time, ms", MoreIsBetter: more}
	for _, v := range a {
		s.Add(A, q, v)
	}
	for _, v := range b {
		s.Add(B, q, v)
	}
	return s
}

func TestVerdict(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		more  bool
		a, b  []float64
		ratio float64
		want  Verdict
	}{
		{"lower time", false, []float64{10, 20, 40}, []float64{9, 16, 20}, 0.8, Better},
		{"higher time", false, []float64{10, 20, 20}, []float64{12, 22, 22}, 1.1, Worse},
		{"higher throughput", true, []float64{10, 20, 20}, []float64{12, 22, 22}, 1.1, Better},
		{"lower throughput", true, []float64{10, 20, 30}, []float64{5, 10, 15}, 0.5, Worse},
		{"both", false, []float64{10, 10, 10}, []float64{9, 12, 11}, 1.1, Noise},
		{"printed as 1.00", false, []float64{1000, 10, 10}, []float64{1001, 11, 11}, 1.1, Noise},
		{"once", false, []float64{10}, []float64{20}, 2, Few},
		{"twice", false, []float64{10, 10}, []float64{20, 20}, 2, Few},
		{"one side", false, nil, []float64{20}, 0, None},
		{"none to divide by", false, []float64{0, 10}, []float64{5, 20}, 2, Few},
	} {
		f := samples(test.more, test.a, test.b).Figures()[0]
		if d := f.Ratio - test.ratio; f.Verdict != test.want || d > 0.001 || d < -0.001 {
			t.Errorf("%s: %q with %v, want %q with %v", test.name, f.Verdict, f.Ratio, test.want, test.ratio)
		}
	}
}

// The ratio is that of the rounds, not that of the medians: what slows down a whole round does not count.
func TestRatioIsOfRounds(t *testing.T) {
	t.Parallel()
	f := samples(false, []float64{10, 30, 20}, []float64{11, 33, 18}).Figures()[0]
	if f.MedianA != 20 || f.MedianB != 18 || f.Ratio < 1.09 || f.Ratio > 1.11 {
		t.Errorf("%+v", f)
	}
}

func TestPrint(t *testing.T) {
	t.Parallel()
	s := samples(false, []float64{1.234, 2}, []float64{2, 2})
	s.Add(B, Quantity{Row: "swap", Name: "CPU, s"}, 1234.5)
	var table, text strings.Builder
	r := Report{A: "one", B: "two", Figures: s.Figures()}
	if err := r.Markdown(&table); err != nil {
		t.Fatal(err)
	}
	want := `| | one | two | ratio | range | |
|---|---|---|---|---|---|
| GET: time, ms | 1.62 | 2 | 1.31 | 1.00–1.62 | too few rounds |
| swap: CPU, s | – | 1234 |  |  |  |
`
	if table.String() != want {
		t.Errorf("table\n%s", table.String())
	}
	if err := r.JSON(&text); err != nil {
		t.Fatal(err)
	}
	var report struct {
		Rows []struct{ A, B []float64 }
	}
	if err := json.Unmarshal([]byte(text.String()), &report); err != nil {
		t.Fatal(err)
	}
	if len(report.Rows) != 2 || len(report.Rows[0].A) != 2 || report.Rows[0].A[0] != 1.234 {
		t.Errorf("JSON %s", text.String())
	}
}
