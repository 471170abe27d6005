package h1

import "testing"

func TestBudget(t *testing.T) {
	t.Parallel()
	total := NewBudget(100, nil)
	a, b := NewBudget(80, total), NewBudget(80, total)
	for i, step := range []struct {
		of   *Budget
		n    int64
		want bool
	}{{a, 81, false}, {a, 60, true}, {b, 41, false}, {b, 40, true}, {a, 1, false}} {
		if got := step.of.take(step.n); got != step.want {
			t.Errorf("step %d: there is room: %t", i, got)
		}
	}
	a.give(60)
	b.give(40)
	if a.used.Load() != 0 || b.used.Load() != 0 || total.used.Load() != 0 {
		t.Error("what was given back is still taken")
	}
}
