package gctune

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"time"
)

const (
	// standard is the percentage that Go has by default, and most the one that a heap of next to nothing gets.
	standard, most = 100, 1000
	// warmUp is left to Go's own pace: what a start leaves among what is live stays there.
	warmUp = 15 * time.Second
)

// Headroom lets the heap grow by at least that many bytes before garbage is collected, until ctx ends: a
// program with little that is live collects as seldom as one with that much. It does nothing if GOGC is set.
func Headroom(ctx context.Context, bytes uint64) {
	if os.Getenv("GOGC") != "" {
		return
	}
	select {
	case <-ctx.Done():
	case <-time.After(warmUp):
		followCollections(ctx, bytes)
	}
}

// followCollections adjusts the percentage after each collection: a heap that has grown since the one
// before must not go on growing by the percentage of a small one.
func followCollections(ctx context.Context, headroom uint64) {
	collected := make(chan struct{}, 1)
	for now := 0; ctx.Err() == nil; {
		if want := percent(readHeap().live, headroom); differs(now, want) {
			debug.SetGCPercent(want)
			now = want
		}
		runtime.AddCleanup(new(garbage), func(collected chan<- struct{}) { collected <- struct{}{} }, collected)
		select {
		case <-ctx.Done():
		case <-collected:
		}
	}
}

// garbage is what the next collection finds. Smaller objects share their memory with others.
type garbage [64]byte

// percent is what a heap with that much that is live may grow by, to grow by headroom.
func percent(live, headroom uint64) int {
	if live == 0 {
		return standard
	}
	return int(min(max(headroom*100/live, standard), most))
}

// differs reports whether a change is worth it: it stops the program for a moment.
func differs(now, want int) bool {
	return want*4 > now*5 || now*4 > want*5 || now != want && want == standard
}
