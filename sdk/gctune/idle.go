package gctune

import (
	"context"
	"math"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// interval is how long a program has to be idle.
	interval = 5 * time.Second
	// busy is the share of one processor from which on a program is not idle.
	busy = 0.05
	// least is what is worth a collection, in bytes.
	least = 8 << 20
)

// ReleaseWhenIdle returns memory to the system when the program has been idle for some seconds, until
// ctx ends: at the cost of one collection, at a time when nobody waits. With GOGC=off, it does nothing.
func ReleaseWhenIdle(ctx context.Context) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	last, at := processorTime(), time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		used, now := processorTime(), time.Now()
		if isIdle(used-last, now.Sub(at)) && readHeap().worth() {
			debug.FreeOSMemory()
			used, now = processorTime(), time.Now() // the collection is no work
		}
		last, at = used, now
	}
}

// isIdle reports whether a program has used next to nothing of the processors over a time.
func isIdle(used, over time.Duration) bool { return used.Seconds() < busy*over.Seconds() }

// heap is what the runtime knows of the heap, in bytes.
type heap struct {
	// live is what the last collection has found in use, objects what is in use or has not been collected.
	live, objects uint64
	// free is what holds nothing and belongs to the process.
	free uint64
	// collected is false if there is no garbage collection.
	collected bool
}

func readHeap() heap {
	samples := []metrics.Sample{
		{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/memory/classes/heap/free:bytes"}, {Name: "/gc/gogc:percent"},
	}
	metrics.Read(samples)
	value := func(i int) uint64 {
		if samples[i].Value.Kind() != metrics.KindUint64 {
			return 0
		}
		return samples[i].Value.Uint64()
	}
	return heap{live: value(0), objects: value(1), free: value(2), collected: value(3) != math.MaxUint64}
}

// worth reports whether a collection may return enough: a quarter of what is live.
func (h heap) worth() bool {
	back := h.free
	if h.objects > h.live {
		back += h.objects - h.live
	}
	return h.collected && back >= max(least, h.live/4)
}
