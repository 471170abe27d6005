package gctune

import (
	"math"
	"runtime/debug"
	"runtime/metrics"
)

// least is what is worth a collection, in bytes.
const least = 8 << 20

// Release returns memory to the system, if there is enough of it to be worth the collection that it costs: it is
// to be called while the program has no work. With GOGC=off, it does nothing.
func Release() {
	if readHeap().worth() {
		debug.FreeOSMemory()
	}
}

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
