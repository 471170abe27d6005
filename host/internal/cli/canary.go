package cli

import (
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/catena-dev/catena/host/internal/canary"
	"github.com/catena-dev/catena/host/internal/printable"
	"github.com/catena-dev/catena/host/internal/supervisor"
)

// moveFlags are those of catena swap that say how requests move to the new process.
type moveFlags struct {
	share             string
	then              []string
	by                string
	each              time.Duration
	promote, rollback bool
}

// defaultStep is the time of each step of a canary.
const defaultStep = 10 * time.Minute

func (f *moveFlags) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.share, "canary", "", "`share` of the clients that have the new process first, such as 5%")
	cmd.Flags().StringSliceVar(&f.then, "then", nil, "larger `shares` that follow, separated by commas; 100% comes last in any case")
	cmd.Flags().StringVar(&f.by, "by", string(canary.Client),
		"what stays on one side of a canary: client (a user with a user agent at an address), `user` or namespace")
	cmd.Flags().DurationVar(&f.each, "for", defaultStep, "`time` of each step of a canary")
	cmd.Flags().BoolVar(&f.promote, "promote", false, "end a canary or a probation: the new process stays, and has all requests")
	cmd.Flags().BoolVar(&f.rollback, "rollback", false, "end a canary or a probation: the old process has all requests again")
	_ = cmd.RegisterFlagCompletionFunc("by", cobra.FixedCompletions(names(canary.All()), onlyThese))
}

func names(all []canary.By) []string {
	var names []string
	for _, by := range all {
		names = append(names, string(by))
	}
	return names
}

// concludes reports whether a swap is to end, and which process is to stay then.
func (f *moveFlags) concludes(cmd *cobra.Command) (keep, wanted bool, err error) {
	if !f.promote && !f.rollback {
		return false, false, nil
	}
	for _, name := range []string{"binary", "sha256", "rollback-on", "probation", "emulate", "allow", "canary", "then", "by", "for"} {
		if cmd.Flags().Changed(name) {
			return false, true, fmt.Errorf("--%s goes with a swap that begins, --promote and --rollback with one that is under way", name)
		}
	}
	if f.promote && f.rollback {
		return false, true, errors.New("--promote and --rollback exclude each other")
	}
	return f.promote, true, nil
}

// canary is nil if the flags ask for none. It takes the conditions out of those given that only a canary can have.
func (f *moveFlags) canary(cmd *cobra.Command, conditions []string) (*canary.Plan, []string, error) {
	if f.share == "" {
		for _, name := range []string{"then", "by", "for"} {
			if cmd.Flags().Changed(name) {
				return nil, nil, fmt.Errorf("--%s goes with --canary", name)
			}
		}
		for _, c := range conditions {
			if ours, _ := new(canary.Limits).Parse(c); ours {
				return nil, nil, fmt.Errorf("--rollback-on: %s goes with --canary", c)
			}
		}
		return nil, conditions, nil
	}
	if cmd.Flags().Changed("probation") {
		return nil, nil, errors.New("--probation does not go with --canary: its steps last as long as --for says")
	}
	p, err := canary.NewPlan(f.share, f.then, f.each, canary.By(f.by))
	if err != nil {
		return nil, nil, err
	}
	var others []string
	for _, c := range conditions {
		ours, err := p.Limits.Parse(c)
		if err != nil {
			return nil, nil, fmt.Errorf("--rollback-on: %w", err)
		}
		if !ours {
			others = append(others, c)
		}
	}
	return p, others, nil
}

// maxRows is how many kinds of requests are printed.
const maxRows = 15

// printCanary compares the two sides of a canary.
func printCanary(out io.Writer, c *supervisor.CanaryStatus) error {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	printable.Fprintf(w, "  VERB\tRESOURCE\tPROCESS\tREQUESTS\tERRORS\tREFUSED\tMEAN\tLONGEST\n")
	row := func(verb, resource string, old, next canary.Counts) {
		side := func(verb, resource, process string, c canary.Counts) {
			printable.Fprintf(w, "  %s\t%s\t%s\t%d\t%d\t%d\t%s\t%s\n", verb, resource, process,
				c.Requests, c.Failed, c.Refused, short(c.Mean()), short(c.Longest))
		}
		side(verb, resource, "new", next)
		side("", "", "old", old)
	}
	row("all", "", c.Difference.Old, c.Difference.New)
	for i, r := range c.Rows {
		if i == maxRows {
			printable.Fprintf(w, "  ...\tand %d more: -o json has all\n", len(c.Rows)-i)
			break
		}
		row(r.Verb, r.Resource, r.Old, r.New)
	}
	return w.Flush()
}

func short(d time.Duration) string {
	switch {
	case d == 0:
		return "-"
	case d < time.Second:
		return fmt.Sprintf("%.1fms", float64(d)/float64(time.Millisecond))
	}
	return d.Round(10 * time.Millisecond).String()
}
