package h1

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestBudget(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		total := NewBudget(100, time.Second, nil)
		a, b := NewBudget(80, time.Second, total), NewBudget(80, time.Second, total)
		for i, step := range []struct {
			of   *Budget
			n    int64
			want bool
		}{{a, 81, false}, {a, 60, true}, {b, 41, false}, {b, 40, true}, {a, 1, false}} {
			if err := step.of.take(t.Context(), step.n); err != nil != !step.want || err != nil && !errors.Is(err, ErrNoRoom) {
				t.Errorf("step %d: %v", i, err)
			}
		}
		time.AfterFunc(time.Second/2, func() { a.Give(60) })
		if err := b.take(t.Context(), 40); err != nil {
			t.Errorf("while another gives back: %v", err)
		}
		b.Give(80)
		for _, of := range []*Budget{a, b, total} {
			if !of.room.TryAcquire(of.limit) {
				t.Error("what was given back is still taken")
			}
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		gone := errors.New("gone")
		time.AfterFunc(time.Second/2, func() { cancel(gone) })
		if err := a.take(ctx, 1); !errors.Is(err, gone) {
			t.Errorf("one that gives up: %v", err)
		}
	})
}
