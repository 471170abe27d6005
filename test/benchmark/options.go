package main

import (
	"flag"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// options are the flags.
type options struct {
	bin        string
	rounds     int
	requests   int
	configMaps int
	watchers   int
	crds       int
	rest       time.Duration
	compilers  int
	set        []string // for the configuration of Catena
	rows       *regexp.Regexp
	output     string
	profiles   string
	growth     growthOptions
	parameters map[string]string // all flags, as text
}

// quick are the defaults with -quick.
var quick = map[string]string{
	"rounds": "2", "requests": "800", "configmaps": "3000", "watchers": "50", "crds": "60", "rest": "10s",
}

// parse reads the flags. It has printed the error that it returns.
func parse(args []string) (options, error) {
	var o options
	f := flag.NewFlagSet("benchmark", flag.ContinueOnError)
	f.StringVar(&o.bin, "bin", "bin", "`directory` with catena, plugins/ and tools/")
	f.IntVar(&o.rounds, "rounds", 5, "rounds of each row; half as many of those that need new servers")
	f.IntVar(&o.requests, "requests", 4000, "requests of each round; fewer of those that cost more")
	f.IntVar(&o.configMaps, "configmaps", 20000, "ConfigMaps in the store, at least 500")
	f.IntVar(&o.watchers, "watchers", 200, "watchers of one object")
	f.IntVar(&o.crds, "crds", 300, "CustomResourceDefinitions of 200 fields")
	f.DurationVar(&o.rest, "rest", 30*time.Second, "time between the end of work and what is measured at rest, or after it")
	f.IntVar(&o.compilers, "compilers", 0, "compilers that run beside both systems, in a thread each")
	f.Func("set", "`key=value` for the configuration of Catena; may be repeated", func(v string) error {
		o.set = append(o.set, v)
		return nil
	})
	f.StringVar(&o.output, "o", "text", "`format` of the report: text or json; json has all samples")
	f.StringVar(&o.profiles, "profiles", "", "`directory` for CPU profiles of Catena's processes under each load, taken after the measurements")
	o.growth.flags(f)
	rows := f.String("rows", ".", "`regexp` of the rows to measure: "+strings.Join(rowNames(), "; "))
	isQuick := f.Bool("quick", false, "a run of minutes: less of everything, except for what other flags say")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	err := o.check(f, *rows, *isQuick)
	if err != nil {
		fmt.Fprintln(f.Output(), "benchmark:", err)
	}
	return o, err
}

// check completes the options with what takes more than one flag.
func (o *options) check(f *flag.FlagSet, rows string, isQuick bool) error {
	if f.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	if o.output != "text" && o.output != "json" {
		return fmt.Errorf("-o %s: want text or json", o.output)
	}
	if isQuick {
		given := map[string]bool{}
		f.Visit(func(f *flag.Flag) { given[f.Name] = true })
		for name, value := range quick {
			if given[name] {
				continue
			}
			if err := f.Set(name, value); err != nil {
				return err
			}
		}
	}
	for name, n := range map[string]int{"rounds": o.rounds, "requests": o.requests, "watchers": o.watchers, "crds": o.crds} {
		if n < 1 {
			return fmt.Errorf("-%s %d: want 1 or more", name, n)
		}
	}
	if err := o.growth.check(); err != nil {
		return err
	}
	if o.configMaps < listed {
		return fmt.Errorf("-configmaps %d: want %d or more", o.configMaps, listed)
	}
	var err error
	if o.rows, err = regexp.Compile(rows); err != nil {
		return fmt.Errorf("-rows: %w", err)
	}
	if !slices.ContainsFunc(rowNames(), o.rows.MatchString) {
		return fmt.Errorf("-rows %s is none of: %s", rows, strings.Join(rowNames(), "; "))
	}
	o.parameters = map[string]string{}
	f.VisitAll(func(f *flag.Flag) { o.parameters[f.Name] = f.Value.String() })
	o.parameters["set"] = strings.Join(o.set, " ")
	return nil
}
