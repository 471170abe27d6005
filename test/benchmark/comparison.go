package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"runtime"
	"slices"
	"time"

	"github.com/catena-dev/catena/test/benchmark/internal/apiserver"
	"github.com/catena-dev/catena/test/benchmark/internal/figure"
)

// nameA and nameB are what reports call the systems.
const (
	nameA = "kube-apiserver"
	nameB = "Catena"
)

const (
	// settleTime is how long both systems are left alone once they are idle.
	settleTime = 10 * time.Second
	// disturbance is the share of a processor from which on a system that should be idle is reported.
	disturbance = 0.2
)

// comparison is one run.
type comparison struct {
	options
	dir     string
	figures *figure.Set
}

// section is a group of rows that need the same state.
type section struct {
	name    string
	measure func(*comparison, context.Context) error
	rows    []string
}

// sections are what a run consists of, in order.
func sections() []section {
	loaded := []string{rowConfigMaps, rowWatch, rowSwap}
	for _, r := range requests() {
		loaded = append(loaded, r.name)
	}
	var rests []string
	for _, r := range restRows() {
		rests = append(rests, r.name)
	}
	return []section{
		{"disk", (*comparison).disk, []string{rowDisk}},
		{"starts", (*comparison).starts, []string{rowFirstStart, rowSecondStart}},
		{"new servers", (*comparison).fresh, []string{rowRest, rowCRDs}},
		{"servers with objects", (*comparison).loaded, loaded},
		{"servers at rest", (*comparison).afterRests, rests},
	}
}

// rowNames lists the rows.
func rowNames() []string {
	var all []string
	for _, s := range sections() {
		all = append(all, s.rows...)
	}
	return all
}

// wants reports whether a row is to be measured.
func (c *comparison) wants(row string) bool { return c.rows.MatchString(row) }

// measure measures the rows, or draws the pictures of -growth.
func (c *comparison) measure(ctx context.Context) error {
	if c.growth.dir != "" {
		return c.drawGrowth(ctx)
	}
	if err := c.readBinaries(); err != nil {
		return err
	}
	stop, err := c.startCompilers(ctx, c.compilers)
	if err != nil {
		return err
	}
	defer stop()
	for _, s := range sections() {
		if !slices.ContainsFunc(s.rows, c.wants) {
			continue
		}
		log.Printf("measuring: %s", s.name)
		if err := s.measure(c, ctx); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}

// readBinaries has the kernel read the programs of both systems: how much the page cache has of a file counts in the memory of a process, and of one that was
// just built it has everything.
func (c *comparison) readBinaries() error {
	for _, side := range order(0) {
		s, err := c.newServer(side, "binaries")
		if err != nil {
			return err
		}
		for _, path := range s.Binaries {
			f, err := os.Open(path)
			if err != nil {
				return err
			}
			_, err = io.Copy(io.Discard, f)
			if err := errors.Join(err, f.Close()); err != nil {
				return err
			}
		}
	}
	return nil
}

// print writes the report.
func (c *comparison) print(w io.Writer) error {
	if len(c.figures.Figures()) == 0 {
		return nil
	}
	r := figure.Report{A: nameA, B: nameB, Parameters: c.parameters, Figures: c.figures.Figures()}
	if c.output == "json" {
		return r.JSON(w)
	}
	return r.Markdown(w)
}

// add adds a sample of a quantity of which less is better.
func (c *comparison) add(side figure.Side, row, name string, v float64) {
	c.figures.Add(side, figure.Quantity{Row: row, Name: name}, v)
}

// addRate adds a sample of a quantity of which more is better.
func (c *comparison) addRate(side figure.Side, row, name string, v float64) {
	c.figures.Add(side, figure.Quantity{Row: row, Name: name, MoreIsBetter: true}, v)
}

// newServer returns a system without data, in a directory called name.
func (c *comparison) newServer(side figure.Side, name string) (*apiserver.Server, error) {
	if side == figure.A {
		return apiserver.Kube(c.bin, c.serverDir(side, name))
	}
	return c.newCatena(name, "configs/kube-apiserver.yaml")
}

// newCatena returns a Catena without data, with a configuration.
func (c *comparison) newCatena(name, config string) (*apiserver.Server, error) {
	return apiserver.Catena(c.bin, c.serverDir(figure.B, name), apiserver.CatenaOptions{
		Config: config, Set: c.set, Debug: c.profiles != "",
	})
}

func (c *comparison) serverDir(side figure.Side, name string) string {
	return fmt.Sprintf("%s/%s-%c", c.dir, name, 'a'+rune(side))
}

// order is the order of the sides in a round.
func order(round int) []figure.Side {
	if round%2 == 0 {
		return []figure.Side{figure.A, figure.B}
	}
	return []figure.Side{figure.B, figure.A}
}

// inTurn measures something on one system of a pair, then on the other, rounds times.
func (c *comparison) inTurn(rounds int, p *pair, row string, measure func(figure.Side, *system) error) error {
	for round := range rounds {
		for _, side := range order(round) {
			other := p[1-side]
			runtime.GC() // the client's garbage of the turn before
			before, began := other.CPU(), time.Now()
			if err := measure(side, p[side]); err != nil {
				return fmt.Errorf("%s: %s: %w", row, p[side].Name, err)
			}
			if share := (other.CPU() - before).Seconds() / time.Since(began).Seconds(); share > disturbance {
				log.Printf("%s, round %d: %s used %.0f %% of a processor in the turn of %s", row, round, other.Name, 100*share, p[side].Name)
			}
		}
	}
	return nil
}

// settle waits until both systems have had nothing to do for a while.
func settle(ctx context.Context, p *pair) error {
	if err := idle(ctx, p[figure.A], p[figure.B]); err != nil {
		return err
	}
	return sleep(ctx, settleTime)
}

// idle waits until systems have nothing to do. It is not an error that one always has something.
func idle(ctx context.Context, systems ...*system) error {
	var servers []*apiserver.Server
	for _, s := range systems {
		servers = append(servers, s.Server)
	}
	if err := apiserver.AwaitIdle(ctx, servers...); err != nil {
		log.Print(err)
	}
	return ctx.Err()
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
