package gctune

import "testing"

func TestPercent(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	for _, tc := range []struct {
		live, headroom uint64
		want           int
	}{
		{0, 64 * mib, 100}, {20 * mib, 64 * mib, 320}, {64 * mib, 64 * mib, 100}, {500 * mib, 64 * mib, 100}, {mib, 64 * mib, 1000}, {1, 1 << 40, 1000},
	} {
		if got := percent(tc.live, tc.headroom); got != tc.want {
			t.Errorf("%d live, %d to grow: %d %%, want %d %%", tc.live, tc.headroom, got, tc.want)
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
