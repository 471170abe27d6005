package gctune

import "testing"

func TestPercent(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	for _, tc := range []struct {
		live uint64
		want int
	}{{0, 100}, {1, 1000}, {mib, 1000}, {20 * mib, 320}, {64 * mib, 100}, {500 * mib, 100}} {
		if got := percent(tc.live); got != tc.want {
			t.Errorf("%d live: %d %%, want %d %%", tc.live, got, tc.want)
		}
	}
}

func TestDiffers(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		now, want int
		differs   bool
	}{{100, 100, false}, {100, 320, true}, {320, 300, false}, {320, 400, false}, {320, 420, true}, {320, 250, true}, {120, 100, true}, {1000, 900, false}} {
		if differs(tc.now, tc.want) != tc.differs {
			t.Errorf("%d to %d: not %v", tc.now, tc.want, tc.differs)
		}
	}
}
