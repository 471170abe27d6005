package process

import (
	"testing"
	"time"
)

func TestBackoff(t *testing.T) {
	t.Parallel()
	const ms, s = time.Millisecond, time.Second
	b := Backoff{First: 100 * ms, Max: 5 * s, Jitter: 0.2, Healthy: 60 * s}
	for _, tc := range []struct {
		failures int
		ran      time.Duration
		random   float64
		delay    time.Duration
		next     int
	}{
		{0, 0, 0, 100 * ms, 1},
		{1, 0, 0, 200 * ms, 2},
		{2, 59 * s, 0, 400 * ms, 3},
		{5, 0, 0, 3200 * ms, 6},
		{6, 0, 0, 5 * s, 7},
		{1 << 40, 0, 0, 5 * s, 1<<40 + 1},
		{6, 60 * s, 0, 100 * ms, 1},
		{0, 0, 0.5, 90 * ms, 1},
		{6, 0, 0.999999, 4 * s, 7},
	} {
		delay, next := b.Next(tc.failures, tc.ran, tc.random)
		if (delay-tc.delay).Abs() > time.Microsecond*10 || next != tc.next {
			t.Errorf("after %d failures and %s, random %v: %s, %d; want %s, %d",
				tc.failures, tc.ran, tc.random, delay, next, tc.delay, tc.next)
		}
	}
}
