// Command lifecycle measures what changes and crashes of a stage cost its clients: how
// long a swap takes, how long a request waits in it, how long it takes from the death of
// a process to the first response, with a standby and without, and what a standby costs in
// memory. Each figure is the median of its rounds, with the largest in brackets.
//
// It runs Catena with its three stages and, for each of them, one client that reads an
// object of the stage's without a pause.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/catena-dev/catena/test/internal/cluster"
)

// stages are the measured stages, each with a path that it serves.
var stages = []struct{ name, path string }{
	{"aggregator", "/apis/apiregistration.k8s.io/v1/apiservices/v1.apps"},
	{"core", "/api/v1/namespaces/default"},
	{"extensions", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"},
}

func main() {
	rounds := flag.Int("rounds", 5, "rounds of each measurement")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *rounds); err != nil {
		fmt.Fprintln(os.Stderr, "lifecycle:", err)
		os.Exit(1)
	}
}

// figures are samples in milliseconds or MiB, by stage and quantity.
type figures map[[2]string][]float64

func (f figures) add(stage, quantity string, v float64) {
	key := [2]string{stage, quantity}
	f[key] = append(f[key], v)
}

func (f figures) String(stage, quantity string) string {
	s := slices.Sorted(slices.Values(f[[2]string{stage, quantity}]))
	if len(s) == 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f (%.0f)", s[len(s)/2], s[len(s)-1])
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func run(ctx context.Context, rounds int) error {
	dir, err := os.MkdirTemp("", "lifecycle")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	config := filepath.Join(dir, "catena.yaml")
	if err := writeConfig(config, false); err != nil {
		return err
	}
	c, err := cluster.StartCatena(ctx, cluster.Options{ConfigFile: config})
	if err != nil {
		return err
	}
	f := figures{}
	err = measure(ctx, c, config, rounds, f)
	if stopErr := c.Stop(err != nil); err == nil {
		err = stopErr
	}
	if err != nil {
		return err
	}
	return f.print()
}

func writeConfig(path string, standby bool) error {
	text := "apiVersion: catena.dev/v1alpha1\nkind: HostConfiguration\nlog: {stageLevel: error}\nstages:\n"
	for i, s := range stages {
		text += fmt.Sprintf("  %s: {lock: off, standby: %t, drainSpread: 1s, drainTimeout: 5s", s.name, standby)
		if i+1 < len(stages) {
			text += ", delegate: " + stages[i+1].name
		}
		text += "}\n"
	}
	return os.WriteFile(path, []byte(text), 0o600)
}

func measure(ctx context.Context, c *cluster.Catena, config string, rounds int, f figures) error {
	for _, s := range stages {
		p, err := startProber(c, s.path)
		if err != nil {
			return err
		}
		for range rounds {
			if err := measureSwap(ctx, c, p, s.name, f); err != nil {
				return err
			}
		}
		for range rounds {
			if err := measureKill(ctx, c, p, s.name, "killed", f); err != nil {
				return err
			}
		}
		p.stop()
	}
	if err := writeConfig(config, true); err != nil {
		return err
	}
	if _, err := c.Command(ctx, "reload"); err != nil {
		return err
	}
	for _, s := range stages {
		p, err := startProber(c, s.path)
		if err != nil {
			return err
		}
		for range rounds {
			standby, err := awaitStandby(ctx, c, s.name)
			if err != nil {
				return err
			}
			if size, err := privateMemory(standby); err == nil {
				f.add(s.name, "memory", size)
			}
			if err := measureKill(ctx, c, p, s.name, "killed with standby", f); err != nil {
				return err
			}
		}
		p.stop()
	}
	return nil
}

func measureSwap(ctx context.Context, c *cluster.Catena, p *prober, stage string, f figures) error {
	began := time.Now()
	if _, err := c.Command(ctx, "swap", stage); err != nil {
		return err
	}
	ended := time.Now()
	f.add(stage, "swap", ms(ended.Sub(began)))
	longest, failed := p.since(began)
	f.add(stage, "stall", ms(longest))
	if failed > 0 {
		return fmt.Errorf("%d requests have failed because of a swap of %s", failed, stage)
	}
	return settle(ctx, c)
}

// measureKill kills the process that serves and waits for the response to a request that
// was sent after that.
func measureKill(ctx context.Context, c *cluster.Catena, p *prober, stage, quantity string, f figures) error {
	status, err := c.Status(ctx)
	if err != nil {
		return err
	}
	for _, s := range status.Stages {
		if s.Stage != stage {
			continue
		}
		killed := time.Now()
		if err := syscall.Kill(s.PID, syscall.SIGKILL); err != nil {
			return err
		}
		responded, err := p.awaitResponse(ctx, killed)
		if err != nil {
			return err
		}
		f.add(stage, quantity, ms(responded.Sub(killed)))
	}
	return settle(ctx, c)
}

func (f figures) print() error {
	w := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "stage\tswap, ms\tlongest request in it, ms\tSIGKILL to first response, ms\twith standby, ms\tstandby, MiB")
	for _, s := range stages {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", s.name, f.String(s.name, "swap"), f.String(s.name, "stall"),
			f.String(s.name, "killed"), f.String(s.name, "killed with standby"), f.String(s.name, "memory"))
	}
	return w.Flush()
}
