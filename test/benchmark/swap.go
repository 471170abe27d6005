package main

import (
	"context"
	"log"
	"time"

	"github.com/catena-dev/catena/test/benchmark/internal/figure"
	"github.com/catena-dev/catena/test/benchmark/internal/load"
)

const (
	rowSwap = "swap of core"
	// trickle is the time between two requests during a swap.
	trickle = 10 * time.Millisecond
)

// measureSwap adds what a swap of core takes, and what clients notice: kube-apiserver has nothing
// like it.
func (c *comparison) measureSwap(ctx context.Context, s *system) error {
	for range c.rounds {
		if err := idle(ctx, s); err != nil { // the process that was replaced has ended
			return err
		}
		before, began := s.CPU(), time.Now()
		swapped := make(chan error, 1)
		go func() { swapped <- s.Swap(ctx, "core") }()
		reads, err := readUntil(ctx, s, swapped)
		if err != nil {
			return err
		}
		c.add(figure.B, rowSwap, "time, s", time.Since(began).Seconds())
		c.add(figure.B, rowSwap, "CPU, s", (s.CPU() - before).Seconds())
		c.add(figure.B, rowSwap, "longest request, ms", milliseconds(reads.longest))
		c.add(figure.B, rowSwap, "requests", float64(reads.made))
		c.add(figure.B, rowSwap, "failed requests", float64(reads.failed))
	}
	return nil
}

// reads is what a client has noticed.
type reads struct {
	made, failed int
	longest      time.Duration
}

// readUntil reads an object again and again until there is something in done.
func readUntil(ctx context.Context, s *system, done <-chan error) (reads, error) {
	var r reads
	for {
		if err := readOnce(ctx, s.clients[0], &r); err != nil {
			return r, err
		}
		select {
		case err := <-done:
			return r, err
		case <-ctx.Done():
			return r, ctx.Err()
		case <-time.After(trickle):
		}
	}
}

// readOnce counts a request. The error is that of ctx.
func readOnce(ctx context.Context, c *load.Client, r *reads) error {
	sent := time.Now()
	err := get(ctx, nil, c)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	r.made++
	if err != nil {
		r.failed++
		log.Printf("%s: a request failed: %v", rowSwap, err)
	}
	r.longest = max(r.longest, time.Since(sent))
	return nil
}
