package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/catena-dev/catena/test/benchmark/internal/figure"
	"github.com/catena-dev/catena/test/benchmark/internal/load"
)

const rowConfigMaps = "ConfigMaps"

// loaded measures servers with objects: their memory, requests, watches, and a swap of core.
func (c *comparison) loaded(ctx context.Context) error {
	p, err := c.startPair(ctx, "loaded", 0)
	if err != nil {
		return err
	}
	defer p.stop()
	if err := c.fill(ctx, p); err != nil {
		return err
	}
	for _, r := range requests() {
		if !c.wants(r.name) {
			continue
		}
		if err := c.measureRequest(ctx, p, r); err != nil {
			return err
		}
	}
	if c.wants(rowWatch) {
		err := c.inTurn(c.rounds, p, rowWatch, func(side figure.Side, s *system) error { return c.measureWatch(ctx, side, s) })
		if err != nil {
			return err
		}
	}
	if c.wants(rowSwap) {
		if err := c.measureSwap(ctx, p[figure.B]); err != nil {
			return fmt.Errorf("%s: %w", rowSwap, err)
		}
	}
	if c.profiles == "" {
		return nil
	}
	return c.profile(ctx, p[figure.B])
}

// fill creates the objects and adds the memory of the systems that have them.
func (c *comparison) fill(ctx context.Context, p *pair) error {
	row := fmt.Sprintf("%d %s", c.configMaps, rowConfigMaps)
	for side, s := range p {
		if err := s.seed(ctx, c.configMaps); err != nil {
			return fmt.Errorf("seed %s: %w", s.Name, err)
		}
		if c.wants(rowConfigMaps) {
			c.add(figure.Side(side), row, "PSS right after, MiB", float64(s.PSS())/(1<<20))
		}
		if err := idle(ctx, s); err != nil {
			return err
		}
	}
	if !c.wants(rowConfigMaps) {
		return nil
	}
	if err := sleep(ctx, settleTime); err != nil {
		return err
	}
	return c.atRest(ctx, p, row, false)
}

// measureRequest measures one row of requests in turn. A first round does not count.
func (c *comparison) measureRequest(ctx context.Context, p *pair, r request) error {
	n := max(c.requests/r.weight, inFlight)
	for _, s := range p {
		if _, err := r.run(ctx, s, max(n/4, inFlight)); err != nil {
			return fmt.Errorf("%s: %s: %w", r.name, s.Name, err)
		}
	}
	return c.inTurn(c.rounds, p, r.name, func(side figure.Side, s *system) error {
		before := s.CPU()
		result, err := r.run(ctx, s, n)
		if err != nil {
			return err
		}
		c.add(side, r.name, "CPU, µs per request", float64((s.CPU()-before).Microseconds())/float64(n))
		c.addRate(side, r.name, "requests per second", float64(n)/result.Took.Seconds())
		c.addLatency(side, r.name, result.Latencies)
		return nil
	})
}

// addLatency adds the percentiles of sorted latencies.
func (c *comparison) addLatency(side figure.Side, row string, sorted []time.Duration) {
	for _, percent := range []int{50, 99} {
		c.add(side, row, fmt.Sprintf("p%d, ms", percent), milliseconds(load.Percentile(sorted, percent)))
	}
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// run makes n requests of the row.
func (r request) run(ctx context.Context, s *system, n int) (load.Result, error) {
	clients, parallel := s.clients, inFlight
	if r.alone {
		clients, parallel = clients[:1], 1
	}
	result, err := load.Run(ctx, clients, parallel, n, func(ctx context.Context, c *load.Client) error { return r.do(ctx, s, c) })
	if err == nil && len(result.Latencies) != n {
		err = errors.New("requests are missing")
	}
	return result, err
}
