// Command benchmark compares Catena with kube-apiserver: the same requests, from
// one client, against both in turn, each with an etcd of its own. It prints a
// table of ratios, Catena over kube-apiserver: below 1 Catena is cheaper.
//
// The servers run one after the other, so that they do not compete for memory. Absolute
// figures depend on the machine, and the client shares its cores with the servers;
// compare only the ratios of one run, on a machine that is otherwise idle. Each figure is the median of its rounds.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"text/tabwriter"
)

type options struct {
	bin        string
	rounds     int
	requests   int
	configMaps int
	watchers   int
	profiles   string
}

func main() {
	var o options
	flag.StringVar(&o.bin, "bin", "bin", "`directory` with catena, plugins/ and tools/")
	flag.IntVar(&o.rounds, "rounds", 3, "rounds of each workload and server")
	flag.IntVar(&o.requests, "requests", 2000, "requests of each round")
	flag.IntVar(&o.configMaps, "configmaps", 20000, "ConfigMaps in the store")
	flag.IntVar(&o.watchers, "watchers", 500, "watchers of the fan-out")
	flag.StringVar(&o.profiles, "profiles", "", "`directory` for CPU profiles of Catena's processes under each workload, taken after the measurements")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "benchmark:", err)
		os.Exit(1)
	}
}

// figures are the samples of each measured quantity, by name.
type figures map[string][]float64

func (f figures) add(name string, v float64) { f[name] = append(f[name], v) }

func (f figures) median(name string) float64 {
	s := slices.Sorted(slices.Values(f[name]))
	if len(s) == 0 {
		return 0
	}
	return s[len(s)/2]
}

func run(ctx context.Context, o options) error {
	dir, err := os.MkdirTemp("", "catena-benchmark-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)

	kube, catena := figures{}, figures{}
	var names []string
	for _, s := range []struct {
		name  string
		into  figures
		start func(context.Context, string, options) (*server, error)
	}{{"kube-apiserver", kube, startKubeAPIServer}, {"catena", catena, startCatena}} {
		fmt.Fprintf(os.Stderr, "measuring %s\n", s.name)
		names, err = measure(ctx, o, dir+"/"+s.name, s.into, s.start)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}

	w := tabwriter.NewWriter(os.Stdout, 2, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "quantity\tkube-apiserver\tCatena\tratio\t")
	for _, name := range names {
		k, c := kube.median(name), catena.median(name)
		fmt.Fprintf(w, "%s\t%.4g\t%.4g\t%.2f\t\n", name, k, c, c/k)
	}
	return w.Flush()
}

// measure starts the server a few times to measure the time until it is ready, and runs
// all workloads on the last one. It returns the names of the figures in order.
func measure(ctx context.Context, o options, dir string, into figures,
	start func(context.Context, string, options) (*server, error)) ([]string, error) {
	var names []string
	add := func(name string, v float64) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
		into.add(name, v)
	}
	var srv *server
	for i := range o.rounds {
		var err error
		if srv, err = start(ctx, fmt.Sprintf("%s-%d", dir, i), o); err != nil {
			return nil, err
		}
		add("start to ready, s", srv.ready.Seconds())
		if i < o.rounds-1 {
			srv.stop()
		}
	}
	defer srv.stop()

	if err := settle(ctx, srv); err != nil {
		return nil, err
	}
	add("memory at rest, MiB", float64(srv.memory())/(1<<20))
	if err := runWorkloads(ctx, o, srv, add); err != nil {
		return nil, err
	}
	return names, nil
}
