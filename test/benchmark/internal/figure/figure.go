package figure

import "slices"

// Figure is a quantity with its samples and the comparison of the sides.
type Figure struct {
	Quantity
	// A and B are the samples; one is empty if only the other side has the quantity.
	A, B []float64
	// MedianA and MedianB are 0 without samples.
	MedianA, MedianB float64
	// Ratio is the median of the rounds' ratios B/A, Least and Most their range; all are 0 if
	// no round has both.
	Ratio, Least, Most float64
	// Rounds is the number of rounds with a ratio.
	Rounds  int
	Verdict Verdict
}

// Verdict says what the ratios of the rounds mean.
type Verdict string

// The verdicts.
const (
	Better Verdict = "better"           // B is better in every round
	Worse  Verdict = "worse"            // B is worse in every round
	Noise  Verdict = "within the noise" // 1.00 is within the range of the rounds' ratios
	Few    Verdict = "too few rounds"   // one or two are on the same side by chance too often
	None   Verdict = ""                 // there is nothing to compare
)

// fewest is the number of rounds that it takes to compare.
const fewest = 3

func newFigure(q Quantity, a, b []float64) Figure {
	f := Figure{Quantity: q, A: a, B: b, MedianA: median(a), MedianB: median(b)}
	var ratios []float64
	for i := range min(len(a), len(b)) {
		if a[i] != 0 {
			ratios = append(ratios, b[i]/a[i])
		}
	}
	f.Rounds = len(ratios)
	if f.Rounds > 0 {
		f.Ratio, f.Least, f.Most = median(ratios), slices.Min(ratios), slices.Max(ratios)
	}
	f.Verdict = f.verdict()
	return f
}

func (f Figure) verdict() Verdict {
	switch {
	case f.Rounds == 0:
		return None
	case f.Rounds < fewest:
		return Few
	case round(f.Least) <= 1 && round(f.Most) >= 1:
		return Noise
	case (f.Least > 1) == f.MoreIsBetter:
		return Better
	default:
		return Worse
	}
}
