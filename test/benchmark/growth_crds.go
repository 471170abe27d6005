package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/catena-dev/catena/test/benchmark/internal/chart"
	"github.com/catena-dev/catena/test/benchmark/internal/figure"
)

// growCRDs draws the time until CRDs are served, and the memory at rest with them, with more and more of them.
func (c *comparison) growCRDs(ctx context.Context) error {
	p, err := c.startPair(ctx, "growth-crds", 0)
	if err != nil {
		return err
	}
	defer p.stop()
	var took, cpu, memory curves
	var sumTook, sumCPU [2]time.Duration
	var have int
	for round, n := range upTo(c.growth.crds, 0, 100, 200, 300, 500, 700) {
		for _, side := range order(round) {
			t, used, err := p[side].growCRDs(ctx, have, n)
			if err != nil {
				return fmt.Errorf("%s: %d CRDs: %w", p[side].Name, n, err)
			}
			sumTook[side] += t
			sumCPU[side] += used
		}
		have = n
		took.add(n, once(sumTook[figure.A].Seconds(), sumTook[figure.B].Seconds()))
		cpu.add(n, once(sumCPU[figure.A].Seconds(), sumCPU[figure.B].Seconds()))
		if err := c.addRest(ctx, p, n, &memory); err != nil {
			return err
		}
	}
	const x = "CRDs of 200 fields"
	return errors.Join(
		c.write("crds-time", chart.Chart{Title: "Time until CRDs are served", X: x, Y: "time of all until served, s", Lines: took.lines()}),
		c.write("crds-cpu", chart.Chart{Title: "Processor time until CRDs are served", X: x, Y: "CPU of all until served, s", Lines: cpu.lines()}),
		c.write("crds-memory", chart.Chart{Title: "Memory at rest and CRDs", X: x, Y: "PSS, MiB", Lines: memory.lines()}))
}

// growCRDs creates the CRDs from number first up to number end, and returns what that takes until they
// are served. Then it waits until the system is idle.
func (s *system) growCRDs(ctx context.Context, first, end int) (took, cpu time.Duration, err error) {
	if first == end {
		return 0, 0, nil
	}
	before, began := s.CPU(), time.Now()
	if err := s.createCRDs(ctx, first, end); err != nil {
		return 0, 0, err
	}
	if err := s.awaitCRDs(ctx, first, end); err != nil {
		return 0, 0, err
	}
	took, cpu = time.Since(began), s.CPU()-before
	return took, cpu, idle(ctx, s)
}
