package main

import (
	"context"
	"fmt"
	"time"

	"github.com/catena-dev/catena/test/benchmark/internal/figure"
)

const (
	rowRest = "at rest"
	rowCRDs = "CRDs"
)

// fresh measures what needs servers without data, half as many rounds as other rows, as it takes long.
func (c *comparison) fresh(ctx context.Context) error {
	for round := range (c.rounds + 1) / 2 {
		if err := c.freshRound(ctx, round); err != nil {
			return err
		}
	}
	return nil
}

func (c *comparison) freshRound(ctx context.Context, round int) error {
	p, err := c.startPair(ctx, fmt.Sprintf("fresh-%d", round), round)
	if err != nil {
		return err
	}
	defer p.stop()
	if c.wants(rowRest) {
		for side, s := range p {
			c.add(figure.Side(side), rowRest, "PSS right after the start, MiB", float64(s.startPSS)/(1<<20))
		}
	}
	if err := settle(ctx, p); err != nil {
		return err
	}
	if c.wants(rowRest) {
		if err := c.atRest(ctx, p, rowRest, true); err != nil {
			return err
		}
	}
	if !c.wants(rowCRDs) {
		return nil
	}
	for _, side := range order(round) {
		if err := c.createCRDs(ctx, side, p[side]); err != nil {
			return fmt.Errorf("%s: %s: %w", rowCRDs, p[side].Name, err)
		}
	}
	if err := settle(ctx, p); err != nil {
		return err
	}
	return c.atRest(ctx, p, c.crdRow(), false)
}

func (c *comparison) crdRow() string { return fmt.Sprintf("%d %s", c.crds, rowCRDs) }

// atRest adds the memory of systems that have been idle for a while, and what they use of the processor meanwhile.
func (c *comparison) atRest(ctx context.Context, p *pair, row string, cpu bool) error {
	var before [2]time.Duration
	for side, s := range p {
		before[side] = s.CPU()
	}
	began := time.Now()
	if err := sleep(ctx, c.rest); err != nil {
		return err
	}
	took := time.Since(began)
	for side, s := range p {
		c.add(figure.Side(side), row, "PSS, MiB", float64(s.PSS())/(1<<20))
		if cpu {
			c.add(figure.Side(side), row, "CPU, % of one processor", 100*(s.CPU()-before[side]).Seconds()/took.Seconds())
		}
	}
	return nil
}

// createCRDs adds what it takes one system until it serves all of the CRDs, and until it is idle then.
func (c *comparison) createCRDs(ctx context.Context, side figure.Side, s *system) error {
	before, began := s.CPU(), time.Now()
	if err := s.createCRDs(ctx, 0, c.crds); err != nil {
		return err
	}
	if err := s.awaitCRDs(ctx, 0, c.crds); err != nil {
		return err
	}
	c.add(side, c.crdRow(), "time until served, s", time.Since(began).Seconds())
	c.add(side, c.crdRow(), "CPU until served, s", (s.CPU() - before).Seconds())
	c.add(side, c.crdRow(), "PSS right after, MiB", float64(s.PSS())/(1<<20))
	if err := idle(ctx, s); err != nil {
		return err
	}
	c.add(side, c.crdRow(), "CPU until idle, s", (s.CPU() - before).Seconds())
	return nil
}
