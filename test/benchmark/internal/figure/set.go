// Package figure keeps the samples of a comparison of two systems, and says what they show.
package figure

import "slices"

// Side is one of the two systems that are compared.
type Side int

// The sides: ratios are B over A.
const (
	A Side = iota
	B
)

// Quantity is what is measured.
type Quantity struct {
	// Row is what the systems did: "GET". Name is what was measured of it, with the unit: "p50, ms".
	Row, Name string
	// MoreIsBetter holds for throughput; of time, processor time and memory less is better.
	MoreIsBetter bool
}

// Set has the samples of quantities, in the order in which they were first added. It is not safe for
// concurrent use.
type Set struct {
	order   []Quantity
	samples map[Quantity]*[2][]float64
}

// Add adds a sample of one side. The nth sample of A and the nth of B are of the same round.
func (s *Set) Add(side Side, q Quantity, v float64) {
	if s.samples == nil {
		s.samples = map[Quantity]*[2][]float64{}
	}
	if s.samples[q] == nil {
		s.samples[q] = new([2][]float64)
		s.order = append(s.order, q)
	}
	s.samples[q][side] = append(s.samples[q][side], v)
}

// Figures returns what the samples show, in order.
func (s *Set) Figures() []Figure {
	var all []Figure
	for _, q := range s.order {
		all = append(all, newFigure(q, s.samples[q][A], s.samples[q][B]))
	}
	return all
}

// median returns the middle of the samples: of an even number, the mean of the two in the middle.
func median(samples []float64) float64 {
	s := slices.Sorted(slices.Values(samples))
	if len(s) == 0 {
		return 0
	}
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}
