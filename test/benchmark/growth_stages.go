package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/catena-dev/catena/test/benchmark/internal/chart"
	"github.com/catena-dev/catena/test/benchmark/internal/figure"
)

// ownStages are the stages of Kubernetes that a chain of a given length has, from the head to the tail:
// core alone, and from three on all of them.
func ownStages(length int) []string {
	if length < 3 {
		return []string{"core"}
	}
	return []string{"aggregator", "core", "extensions"}
}

// growStages draws what a GET costs in chains of different lengths. The stages that make a chain longer are upstream of
// Kubernetes' and decline each request, or claim nothing, so that they do not get any.
func (c *comparison) growStages(ctx context.Context) error {
	kube, err := c.startSystem(ctx, figure.A, "growth-stages")
	if err != nil {
		return err
	}
	defer kube.stop()
	if err := kube.seed(ctx, listed); err != nil {
		return err
	}
	if err := linkStages(c.dir, c.growth.stages); err != nil {
		return err
	}
	var flat, passed, declined []chart.Point
	for _, n := range upTo(c.growth.stages, 1, 3) {
		one, err := c.getThrough(ctx, kube, n, true)
		if err != nil {
			return fmt.Errorf("%d stages: %w", n, err)
		}
		other := one
		if n > 3 {
			if other, err = c.getThrough(ctx, kube, n, false); err != nil {
				return fmt.Errorf("%d stages: %w", n, err)
			}
		}
		x := float64(n)
		flat = append(flat, chart.Point{X: x, Y: one.MedianA})
		declined = append(declined, chart.Point{X: x, Y: one.MedianB})
		passed = append(passed, chart.Point{X: x, Y: other.MedianB})
	}
	return c.write("stages", chart.Chart{
		Title: "Processor time of a GET and stages in the chain", X: "stages", Y: "CPU, µs per request",
		Lines: []chart.Line{
			{Name: nameA, Points: flat},
			{Name: nameB + ", others decline", Points: declined},
			{Name: nameB + ", others claim nothing", Points: passed},
		},
	})
}

// getThrough returns the processor time of a GET, in microseconds, of kube-apiserver and of a chain with a number of stages.
func (c *comparison) getThrough(ctx context.Context, kube *system, stages int, asked bool) (figure.Figure, error) {
	name := fmt.Sprintf("growth-%d-stages-%t", stages, asked)
	config := filepath.Join(c.dir, name+".yaml")
	if err := os.WriteFile(config, []byte(c.chainConfig(stages, asked)), 0o600); err != nil {
		return figure.Figure{}, err
	}
	server, err := c.newCatena(name, config)
	if err != nil {
		return figure.Figure{}, err
	}
	catena, err := connect(ctx, server)
	if err != nil {
		return figure.Figure{}, err
	}
	defer catena.stop()
	if err := catena.seedConfigMaps(ctx, listed); err != nil {
		return figure.Figure{}, err
	}
	p := &pair{kube, catena}
	if err := idle(ctx, kube, catena); err != nil {
		return figure.Figure{}, err
	}
	row := request{name: "GET", weight: 1, do: get}
	inner := &comparison{options: c.options, dir: c.dir, figures: new(figure.Set)}
	if err := inner.measureRequest(ctx, p, row); err != nil {
		return figure.Figure{}, err
	}
	return inner.figures.Figures()[0], nil
}

// chainConfig is the configuration of a chain. Its other stages see each request, or none.
func (c *comparison) chainConfig(stages int, asked bool) string {
	own := ownStages(stages)
	names := own
	for i := range stages - len(own) {
		names = append([]string{otherStage(i)}, names...)
	}
	var b strings.Builder
	b.WriteString("apiVersion: catena.dev/v1alpha1\nkind: HostConfiguration\napiserver: {authorization-mode: [Node, RBAC]}\nstages:\n")
	for i, name := range names {
		fmt.Fprintf(&b, "  %s:\n    lock: off\n", name)
		if i+1 < len(names) {
			fmt.Fprintf(&b, "    delegate: %s\n", names[i+1])
		}
		if strings.HasPrefix(name, otherPrefix) {
			fmt.Fprintf(&b, "    binary: %s\n    env: {%s: %t}\n    grants: {claims: [\"/**\"]}\n", stageFile(c.dir, name), askedKey, asked)
		}
	}
	return b.String()
}
