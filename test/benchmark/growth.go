package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"
	"slices"

	"github.com/catena-dev/catena/test/benchmark/internal/chart"
	"github.com/catena-dev/catena/test/benchmark/internal/figure"
)

// growthOptions say what pictures of growth there are, and up to where.
type growthOptions struct {
	dir                                string
	stages, configMaps, watchers, crds int
}

func (o *growthOptions) flags(f *flag.FlagSet) {
	f.StringVar(&o.dir, "growth", "", "`directory` for pictures of how costs grow, with their data, instead of the table")
	f.IntVar(&o.stages, "growth-stages", 8, "largest `number` of stages in the chain, 0 for no such picture")
	f.IntVar(&o.configMaps, "growth-configmaps", 50000, "largest `number` of ConfigMaps, 0 for no such picture")
	f.IntVar(&o.watchers, "growth-watchers", 2000, "largest `number` of watchers, 0 for no such picture")
	f.IntVar(&o.crds, "growth-crds", 1000, "largest `number` of CustomResourceDefinitions, 0 for no such pictures")
}

func (o *growthOptions) check() error {
	for name, n := range map[string]int{"stages": o.stages, "configmaps": o.configMaps, "watchers": o.watchers, "crds": o.crds} {
		if n < 0 {
			return fmt.Errorf("-growth-%s %d: want 0 or more", name, n)
		}
	}
	return nil
}

// drawGrowth measures and draws one picture after the other.
func (c *comparison) drawGrowth(ctx context.Context) error {
	if err := os.MkdirAll(c.growth.dir, 0o755); err != nil {
		return err
	}
	for _, g := range []struct {
		name string
		top  int
		draw func(context.Context) error
	}{
		{"stages", c.growth.stages, c.growStages},
		{"configmaps", c.growth.configMaps, c.growConfigMaps},
		{"watchers", c.growth.watchers, c.growWatchers},
		{"crds", c.growth.crds, c.growCRDs},
	} {
		if g.top == 0 {
			continue
		}
		log.Printf("measuring: growth of %s", g.name)
		if err := g.draw(ctx); err != nil {
			return fmt.Errorf("growth of %s: %w", g.name, err)
		}
	}
	return nil
}

// write leaves a picture and its data in -growth.
func (c *comparison) write(name string, p chart.Chart) error {
	return errors.Join(
		writeFile(filepath.Join(c.growth.dir, name+".svg"), p.SVG),
		writeFile(filepath.Join(c.growth.dir, name+".csv"), p.CSV))
}

func writeFile(path string, write func(io.Writer) error) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}

// upTo returns the points that are less than top, and top.
func upTo(top int, points ...int) []int {
	return append(slices.DeleteFunc(points, func(n int) bool { return n >= top }), top)
}

// curves are two lines that grow, by side, of which each point is the median of its samples.
type curves [2][]chart.Point

// add adds a point from what a set has of a row.
func (c *curves) add(x int, f figure.Figure) {
	c[figure.A] = append(c[figure.A], chart.Point{X: float64(x), Y: f.MedianA})
	c[figure.B] = append(c[figure.B], chart.Point{X: float64(x), Y: f.MedianB})
}

func (c *curves) lines() []chart.Line {
	return []chart.Line{{Name: nameA, Points: c[figure.A]}, {Name: nameB, Points: c[figure.B]}}
}

// once returns the figure of one sample of each side.
func once(a, b float64) figure.Figure { return figure.Figure{MedianA: a, MedianB: b} }

// startSeeded starts both systems, with the objects of the requests and no others.
func (c *comparison) startSeeded(ctx context.Context, name string) (*pair, error) {
	p, err := c.startPair(ctx, name, 0)
	if err != nil {
		return nil, err
	}
	for _, s := range p {
		if err := s.seed(ctx, 0); err != nil {
			p.stop()
			return nil, err
		}
	}
	return p, nil
}

// growConfigMaps draws the memory at rest with more and more objects.
func (c *comparison) growConfigMaps(ctx context.Context) error {
	p, err := c.startSeeded(ctx, "growth-configmaps")
	if err != nil {
		return err
	}
	defer p.stop()
	var memory curves
	var have int
	for round, n := range upTo(c.growth.configMaps, 0, 5000, 10000, 20000, 30000, 40000) {
		for _, side := range order(round) {
			if err := p[side].createConfigMaps(ctx, have, n); err != nil {
				return fmt.Errorf("%s: %w", p[side].Name, err)
			}
		}
		have = n
		if err := c.addRest(ctx, p, n, &memory); err != nil {
			return err
		}
	}
	return c.write("configmaps", chart.Chart{
		Title: "Memory at rest and objects", X: "ConfigMaps", Y: "PSS, MiB", Lines: memory.lines(),
	})
}

// addRest adds the memory of both systems at rest.
func (c *comparison) addRest(ctx context.Context, p *pair, x int, memory *curves) error {
	if err := settle(ctx, p); err != nil {
		return err
	}
	if err := sleep(ctx, c.rest); err != nil {
		return err
	}
	memory.add(x, once(float64(p[figure.A].PSS())/(1<<20), float64(p[figure.B].PSS())/(1<<20)))
	return nil
}

// growWatchers draws what an event costs with more and more watchers of an object.
func (c *comparison) growWatchers(ctx context.Context) error {
	p, err := c.startSeeded(ctx, "growth-watchers")
	if err != nil {
		return err
	}
	defer p.stop()
	var event, all curves
	for _, n := range upTo(c.growth.watchers, 1, 10, 50, 100, 200, 500, 1000) {
		f, err := c.burstOf(ctx, p, n)
		if err != nil {
			return err
		}
		event.add(n, f)
		f.MedianA, f.MedianB = f.MedianA*float64(n)/1000, f.MedianB*float64(n)/1000
		all.add(n, f)
	}
	return errors.Join(
		c.write("watch-event", chart.Chart{
			Title: "Processor time for each event and watchers", X: "watchers of one object", Y: "CPU, µs per event", Lines: event.lines(),
		}),
		c.write("watch-change", chart.Chart{
			Title: "Processor time for each change and watchers", X: "watchers of one object", Y: "CPU, ms per change", Lines: all.lines(),
		}))
}

// burstOf returns the processor time of an event with a number of watchers, in microseconds.
func (c *comparison) burstOf(ctx context.Context, p *pair, watchers int) (figure.Figure, error) {
	var set figure.Set
	err := c.inTurn(c.rounds, p, rowWatch, func(side figure.Side, s *system) error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		f, err := s.openFanOut(ctx, watchers)
		if err != nil {
			return err
		}
		cpu, _, err := f.burst(ctx, changesFor(watchers))
		set.Add(side, figure.Quantity{}, float64(cpu.Microseconds())/float64(watchers*changesFor(watchers)))
		return err
	})
	if err != nil {
		return figure.Figure{}, fmt.Errorf("%d watchers: %w", watchers, err)
	}
	return set.Figures()[0], nil
}
