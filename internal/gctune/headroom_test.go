package gctune

import (
	"context"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"time"
)

const mib = 1 << 20

// TestFollowCollections has what is live grow quickly, as under an attack: the heap must not grow by
// what suited a small one.
func TestFollowCollections(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		followCollections(ctx, 64*mib)
	}()
	defer debug.SetGCPercent(standard)
	defer func() { cancel(); <-ended }()

	held := [][]byte{make([]byte, 20*mib)}
	runtime.GC()
	for deadline := time.Now().Add(10 * time.Second); goal() < 64*mib; runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("a small heap may grow to %d MiB", goal()/mib)
		}
	}
	for range 400 {
		held = append(held, make([]byte, mib))
	}
	if most := goal() / mib; most > 3*400 {
		t.Errorf("with 400 MiB in use, the heap may grow to %d MiB", most)
	}
	runtime.KeepAlive(held)
}

// goal is the size of the heap at which the next collection begins.
func goal() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/goal:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

func TestPercent(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		live uint64
		want int
	}{{0, 100}, {1, 1000}, {mib, 1000}, {20 * mib, 320}, {64 * mib, 100}, {500 * mib, 100}} {
		if got := percent(tc.live, 64*mib); got != tc.want {
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
