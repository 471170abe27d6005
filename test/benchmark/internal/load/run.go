package load

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Request makes one request with a client.
type Request func(context.Context, *Client) error

// Result is what a run has taken.
type Result struct {
	Took time.Duration
	// Latencies has the time of each request, in ascending order.
	Latencies []time.Duration
}

// Run makes n requests, inFlight at a time, spread evenly over the clients. The first error ends it.
func Run(ctx context.Context, clients []*Client, inFlight, n int, request Request) (Result, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var left atomic.Int64
	left.Store(int64(n))
	latencies, errs := make([][]time.Duration, inFlight), make([]error, inFlight)
	began := time.Now()
	var workers sync.WaitGroup
	for i := range inFlight {
		client := clients[i%len(clients)]
		workers.Go(func() {
			for left.Add(-1) >= 0 {
				sent := time.Now()
				if errs[i] = request(ctx, client); errs[i] != nil {
					cancel()
					return
				}
				latencies[i] = append(latencies[i], time.Since(sent))
			}
		})
	}
	workers.Wait()
	r := Result{Took: time.Since(began), Latencies: slices.Concat(latencies...)}
	slices.Sort(r.Latencies)
	return r, first(errs)
}

// first returns the error that was not caused by the end of the others.
func first(errs []error) error {
	for _, err := range errs {
		if err != nil && !errors.Is(err, context.Canceled) {
			return err
		}
	}
	return errors.Join(errs...)
}

// Percentile returns the value that p of 100 of the sorted durations do not exceed.
func Percentile(sorted []time.Duration, p int) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)*p/100, len(sorted)-1)]
}
