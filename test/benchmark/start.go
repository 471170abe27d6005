package main

import (
	"context"
	"fmt"
	"log"

	"github.com/catena-dev/catena/test/benchmark/internal/figure"
)

const (
	rowDisk        = "disk"
	rowFirstStart  = "first start"
	rowSecondStart = "second start"
)

// disk adds the size of what has to be installed.
func (c *comparison) disk(context.Context) error {
	for _, side := range order(0) {
		s, err := c.newServer(side, "disk")
		if err != nil {
			return err
		}
		size, err := s.DiskSize()
		if err != nil {
			return err
		}
		c.add(side, rowDisk, "binaries, MB", float64(size)/1e6)
	}
	return nil
}

// starts adds the time and the processor time until a system without data is ready, and until it is once
// more on the data that it then has. The first round, which reads the binaries from the disk, does not count.
func (c *comparison) starts(ctx context.Context) error {
	for round := -1; round < c.options.rounds; round++ {
		for _, side := range order(round + 1) {
			if err := c.startTwice(ctx, side, round); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *comparison) startTwice(ctx context.Context, side figure.Side, round int) error {
	s, err := c.newServer(side, fmt.Sprintf("start-%d", round+1))
	if err != nil {
		return err
	}
	for _, row := range []string{rowFirstStart, rowSecondStart} {
		took, err := s.Start(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", row, err)
		}
		if round >= 0 && c.wants(row) {
			c.add(side, row, "time until ready, s", took.Seconds())
			c.add(side, row, "CPU until ready, s", s.CPU().Seconds())
		}
		if err := s.Stop(); err != nil {
			log.Print(err)
		}
	}
	return nil
}
