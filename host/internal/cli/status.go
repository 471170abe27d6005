package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/catena-dev/catena/host/internal/admin"
	"github.com/catena-dev/catena/host/internal/canary"
	"github.com/catena-dev/catena/host/internal/isolation"
	"github.com/catena-dev/catena/host/internal/printable"
	"github.com/catena-dev/catena/host/internal/relay"
	"github.com/catena-dev/catena/host/internal/suggest"
	"github.com/catena-dev/catena/host/internal/supervisor"
	"github.com/catena-dev/catena/host/internal/traffic"
)

func statusCommand() *cobra.Command {
	var flags configFlags
	var output string
	var watch bool
	cmd := &cobra.Command{
		Use:   "status [STAGE]...",
		Short: "Print the state of the stages of a running host",
		Long: `Print the state of each stage of the host that runs on the data directory, or of the
stages that are named: since when, its process with the memory and the CPU time that it
uses, the requests per second, the share that failed and the latency of the last minute,
its version, how often it was restarted, its standby, how the latest swap ended and what
it is on probation for, why the latest process that failed did, and how the latest reload
of the configuration went; of stages that are named, what they are granted, too. A stage
without a process shows when the next start is tried.
What is wrong stands first: etcd that does not respond or is full, a stage that does not
come up, a certificate that ends, a server that is not ready; the exit code is 1 then.
Memory does not include the pages of files, such as the binary. With -o json in bytes and
seconds, and also claims, health checks, the latest events and changes, and the lifecycle
signals that the server has reached: docs/status.md. With -o pid nothing but the process
of each stage.`,
		Example: `  catena status
  kill -9 $(catena status core -o pid)`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkOutput(output, "text", "json", "pid"); err != nil {
				return err
			}
			client, err := flags.client()
			if err != nil {
				return err
			}
			last := ""
			for {
				all, err := client.Status(cmd.Context())
				if err == nil {
					all.Stages, err = pick(all.Stages, args)
				}
				if err != nil {
					return err
				}
				out := cmd.OutOrStdout()
				if watch && output == "text" && isTerminal(out) {
					if err := redraw(out, all, len(args) > 0); err != nil {
						return err
					}
				} else if now := fingerprint(all); now != last {
					last = now
					if err := printStatus(out, output, all, len(args) > 0); err != nil {
						return err
					}
				}
				if !watch && output == "text" && len(all.Faults) > 0 {
					return exitCode(1)
				}
				if !watch || !pause(cmd.Context(), time.Second/4) {
					return nil
				}
			}
		},
	}
	flags.registerHost(cmd)
	registerOutput(cmd, &output, "text", "json", "pid")
	cmd.ValidArgsFunction = flags.completeStages(math.MaxInt)
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "go on, and print again whenever something has changed")
	return cmd
}

// pick returns the stages that are named, in that order, or all if none is.
func pick(all []supervisor.Status, names []string) ([]supervisor.Status, error) {
	if len(names) == 0 {
		return all, nil
	}
	picked := make([]supervisor.Status, 0, len(names))
	for _, name := range names {
		i := slices.IndexFunc(all, func(st supervisor.Status) bool { return st.Stage == name })
		if i < 0 {
			known := make([]string, len(all))
			for i, st := range all {
				known[i] = st.Stage
			}
			return nil, fmt.Errorf("there is no stage %q%s in the chain, which is %s", name,
				suggest.DidYouMean(name, known), strings.Join(known, ", "))
		}
		picked = append(picked, all[i])
	}
	return picked, nil
}

// fingerprint is the same for two states that look the same to an operator.
func fingerprint(all admin.Status) string {
	all.Stages, all.Traffic, all.Load, all.Checks = slices.Clone(all.Stages), nil, nil, nil
	for i, st := range all.Stages {
		all.Stages[i] = withoutUsage(st)
		if st.Probation != nil {
			p := *st.Probation
			p.Requests = 0 // every request counts
			if p.Canary != nil {
				c := *p.Canary
				c.Difference, c.Rows = canary.Difference{}, nil
				p.Canary = &c
			}
			all.Stages[i].Probation = &p
		}
	}
	if all.Shadow != nil {
		s := *all.Shadow
		s.Compared = 0 // every request counts
		all.Shadow = &s
	}
	b, err := json.Marshal(all)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// withoutUsage returns a status without what changes all the time.
func withoutUsage(st supervisor.Status) supervisor.Status {
	st.Usage, st.Others = nil, slices.Clone(st.Others)
	for i := range st.Others {
		st.Others[i].Usage = nil
	}
	if st.Standby != nil {
		standby := *st.Standby
		standby.Usage = nil
		st.Standby = &standby
	}
	return st
}

func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// printStatus prints of stages that were named what they are, too, and the comparison of a canary.
func printStatus(out io.Writer, format string, all admin.Status, named bool) error {
	switch format {
	case "json":
		return printJSON(out, all)
	case "pid":
		return printPIDs(out, all.Stages)
	}
	return printStatusText(out, coloursOf(out), all, named)
}

// statusHeader is that of the table, without STATE.
const statusHeader = "STAGE\t%s\tFOR\tGENERATION\tPID\tMEMORY\tCPU\tRPS\tERRORS\tP99\tVERSION\tRESTARTS\tCLAIMS\tISOLATION\n"

func printStatusText(out io.Writer, on colours, all admin.Status, named bool) error {
	for _, f := range all.Faults {
		if _, err := printable.Fprintln(out, on.paint(red, f.String())); err != nil {
			return err
		}
	}
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	printable.Fprintf(w, statusHeader, on.paint(plain, "STATE"))
	did := map[string]traffic.Stage{}
	for _, t := range all.Traffic {
		did[t.Stage] = t
	}
	for _, s := range all.Stages {
		state, pid, used := admin.State(s), "-", (*supervisor.Usage)(nil)
		if admin.HasProcess(s) {
			pid, used = strconv.Itoa(s.PID), s.Usage
		}
		printable.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t%s\n",
			s.Stage, on.paint(colourOf(s.State), state), admin.Age(s.Since), dash(s.Generation), pid, memoryOf(used), cpuOf(used),
			admin.Rate(did[s.Stage].PerSecond), admin.Share(did[s.Stage].FailedShare), latencyOf(did[s.Stage].P99),
			dash(s.Version), admin.Restarts(s), s.Claims, isolationColumn(s))
		if s.Standby != nil {
			printGeneration(w, on, "standby", *s.Standby)
		}
		for _, g := range s.Others {
			printGeneration(w, on, admin.Role(s, g), g)
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, s := range all.Stages {
		lines := admin.Remarks(s)
		if named {
			lines = append(admin.Settings(s), lines...)
		}
		for _, line := range lines {
			if _, err := printable.Fprintln(out, printable.Safe(printable.Lines(line))); err != nil {
				return err
			}
		}
		if p := s.Probation; p != nil && p.Canary != nil && named {
			if err := printCanary(out, p.Canary); err != nil {
				return err
			}
		}
	}
	if err := printWatches(out, all.Load); err != nil {
		return err
	}
	if s := all.Shadow; s != nil {
		if _, err := printable.Fprintf(out, "%s is shadowed by %s for another %s: %d requests compared, %d different\n",
			s.Stage, s.Binary, time.Until(s.Until).Round(time.Second), s.Compared, s.Different); err != nil {
			return err
		}
	}
	if all.LastReload == nil {
		return nil
	}
	_, err := printable.Fprintf(out, "configuration read %s ago %s\n", admin.Age(all.LastReload.At),
		printable.Safe(printable.Lines(all.LastReload.String())))
	return err
}

// printWatches prints a line, if clients watch.
func printWatches(out io.Writer, all []relay.Load) error {
	var of []string
	for _, l := range all {
		if l.Watches > 0 {
			of = append(of, l.Stage+" "+admin.Watches(l))
		}
	}
	if len(of) == 0 {
		return nil
	}
	_, err := printable.Fprintln(out, "watches of clients: "+strings.Join(of, "; "))
	return err
}

func printGeneration(w io.Writer, on colours, role string, g supervisor.Generation) {
	printable.Fprintf(w, "  %s\t%s\t%s\t%s\t%d\t%s\t%s\t\t\t\t%s\t\t\t\n", role, on.paint(colourOf(g.State), string(g.State)),
		admin.Age(g.Since), g.Generation, g.PID, memoryOf(g.Usage), cpuOf(g.Usage), dash(g.Version))
}

func memoryOf(u *supervisor.Usage) string {
	if u == nil {
		return "-"
	}
	if u.MemoryBytes >= 10<<30 {
		return fmt.Sprintf("%.1fGi", float64(u.MemoryBytes)/(1<<30))
	}
	return fmt.Sprintf("%dMi", u.MemoryBytes>>20)
}

func cpuOf(u *supervisor.Usage) string {
	if u == nil {
		return "-"
	}
	d := time.Duration(u.CPUSeconds * float64(time.Second))
	if d < time.Minute {
		return d.Round(time.Second / 10).String()
	}
	return d.Round(time.Second).String()
}

func latencyOf(seconds float64) string { return short(time.Duration(seconds * float64(time.Second))) }

// redrawAgain moves to the upper left corner of a terminal, and clears what is below.
const redrawAgain = "\x1b[H\x1b[J"

// redraw prints the status in place of the one before.
func redraw(out io.Writer, all admin.Status, named bool) error {
	var text bytes.Buffer
	if err := printStatusText(&text, coloursOf(out), all, named); err != nil {
		return err
	}
	_, err := io.WriteString(out, redrawAgain+text.String())
	return err
}

// isolationColumn is what isolates the process of a stage, in short.
func isolationColumn(s supervisor.Status) string {
	switch {
	case s.Attached:
		return "off (attached)"
	case !admin.HasProcess(s):
		return "-"
	}
	return isolation.Summary(s.Isolation)
}

// printPIDs prints the process of each stage. It fails if one has none.
func printPIDs(out io.Writer, stages []supervisor.Status) error {
	var errs []error
	for _, s := range stages {
		if !admin.HasProcess(s) {
			errs = append(errs, fmt.Errorf("stage %q has no process: it is %s%s", s.Stage, s.State, admin.NextStart(s)))
			continue
		}
		printable.Fprintln(out, s.PID)
	}
	return errors.Join(errs...)
}

// colourOf returns green for what serves or could, and red for what does not.
func colourOf(state supervisor.State) colour {
	return map[supervisor.Severity]colour{supervisor.Good: green, supervisor.Bad: red, supervisor.Busy: yellow}[state.Severity()]
}

func dash(text string) string { return cmp.Or(text, "-") }
