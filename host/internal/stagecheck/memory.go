package stagecheck

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net/http"
)

const (
	// maxGrowth of resident memory while a stage does the same again and again, in bytes.
	// Garbage collectors take their time.
	maxGrowth = 64 << 20
	// warmUp is the part of the requests that is made before memory is first measured.
	warmUp = 5
	// workers make the requests.
	workers = 8
)

// usage is what a stage's processes hold.
type usage struct {
	resident int64 // bytes
	files    int   // open descriptors
}

func checkMemory(ctx context.Context, s *suite) error {
	st, _, err := s.path(ctx)
	if err != nil {
		return err
	}
	n := s.opts.Requests
	one := func(ctx context.Context) error { return st.again(ctx, fmt.Sprintf("each of %d times", n)) }
	if _, echo, err := s.endpointPath(ctx, "echo"); err == nil {
		body := pattern(1000, "memory")
		get := one
		one = func(ctx context.Context) error {
			if _, err := st.do(ctx, http.MethodPost, echo, bytes.NewReader(body), nil); err != nil {
				return err
			}
			return get(ctx)
		}
	}
	if err := st.requests(ctx, max(n/warmUp, workers), workers, one); err != nil {
		return err
	}
	before, err := usageOf(st.process.PID())
	if err != nil {
		return skipf("the memory of a process cannot be measured on this system: %v", err)
	}
	for from, again := before, false; ; again = true { // a collector may only be about to collect: what leaks grows as much again
		err := st.requests(ctx, n, workers, one)
		after, failed := usageOf(st.process.PID())
		if err := cmp.Or(err, failed); err != nil {
			return err
		}
		if grown := after.resident - from.resident; grown <= maxGrowth {
			break
		} else if again {
			return want(fmt.Sprintf("resident memory that grows by less than %d MiB in %d requests, after %d to warm up, or in as many more", maxGrowth>>20, n, n/warmUp),
				"%d MiB more, from %d to %d, and before from %d", grown>>20, from.resident>>20, after.resident>>20, before.resident>>20)
		}
		from = after
	}
	return st.settles(ctx, before.files+spareFiles, fmt.Sprintf("after %d requests", n))
}
