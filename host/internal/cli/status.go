package cli

import (
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
	"github.com/catena-dev/catena/host/internal/lifecycle"
	"github.com/catena-dev/catena/host/internal/suggest"
	"github.com/catena-dev/catena/host/internal/supervisor"
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
uses, its version, how often it was restarted, its standby, how the latest swap ended and
what it is on probation for, why the latest process that failed did, and how the latest
reload of the configuration went. A stage without a process shows when the next start is
tried. Memory does not include the pages of files, such as the binary. With -o json in
bytes and seconds, and also the lifecycle signals that the server has reached; with -o pid
nothing but the process of each stage.`,
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
				if now := fingerprint(all); now != last {
					last = now
					if err := printStatus(cmd.OutOrStdout(), output, all, len(args) > 0); err != nil {
						return err
					}
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
			return nil, fmt.Errorf("there is no stage %q%s in the chain, which is %s", name, suggest.DidYouMean(name, known), strings.Join(known, ", "))
		}
		picked = append(picked, all[i])
	}
	return picked, nil
}

// fingerprint is the same for two states that look the same to an operator.
func fingerprint(all admin.Status) string {
	all.Stages = slices.Clone(all.Stages)
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

// printStatus prints the comparison of a canary, too, if that is wanted.
func printStatus(out io.Writer, format string, all admin.Status, compare bool) error {
	switch format {
	case "json":
		return printJSON(out, all)
	case "pid":
		return printPIDs(out, all.Stages)
	}
	w, on := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0), coloursOf(out)
	fmt.Fprintf(w, "STAGE\t%s\tFOR\tGENERATION\tPID\tMEMORY\tCPU\tVERSION\tRESTARTS\tCLAIMS\tISOLATION\n", on.paint(plain, "STATE"))
	for _, s := range all.Stages {
		state, pid, used := s.State+nextStart(s), "-", (*supervisor.Usage)(nil)
		if hasProcess(s) {
			pid, used = strconv.Itoa(s.PID), s.Usage
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t%d\t%s\n",
			s.Stage, on.paint(colourOf(s.State), state), age(s.Since), dash(s.Generation), pid, memoryOf(used), cpuOf(used), dash(s.Version), s.Restarts, s.Claims, isolationColumn(s))
		if s.Standby != nil {
			printGeneration(w, on, "standby", *s.Standby)
		}
		for _, g := range s.Others {
			printGeneration(w, on, "other", g)
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, s := range all.Stages {
		for _, line := range remarks(s) {
			if _, err := fmt.Fprintln(out, line); err != nil {
				return err
			}
		}
		if p := s.Probation; p != nil && p.Canary != nil && compare {
			if err := printCanary(out, p.Canary); err != nil {
				return err
			}
		}
	}
	if s := all.Shadow; s != nil {
		if _, err := fmt.Fprintf(out, "%s is shadowed by %s for another %s: %d requests compared, %d different\n",
			s.Stage, s.Binary, time.Until(s.Until).Round(time.Second), s.Compared, s.Different); err != nil {
			return err
		}
	}
	if all.LastReload == nil {
		return nil
	}
	_, err := fmt.Fprintf(out, "configuration read %s ago %s\n", age(all.LastReload.At), all.LastReload)
	return err
}

func printGeneration(w io.Writer, on colours, role string, g supervisor.Generation) {
	fmt.Fprintf(w, "  %s\t%s\t%s\t%s\t%d\t%s\t%s\t\t\t\t\n", role, on.paint(colourOf(g.State), g.State), age(g.Since), g.Generation, g.PID, memoryOf(g.Usage), cpuOf(g.Usage))
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

// isolationColumn is what isolates the process of a stage, in short.
func isolationColumn(s supervisor.Status) string {
	switch {
	case s.Attached:
		return "off (attached)"
	case !hasProcess(s):
		return "-"
	}
	return isolation.Summary(s.Isolation)
}

// printPIDs prints the process of each stage. It fails if one has none.
func printPIDs(out io.Writer, stages []supervisor.Status) error {
	var errs []error
	for _, s := range stages {
		if !hasProcess(s) {
			errs = append(errs, fmt.Errorf("stage %q has no process: it is %s%s", s.Stage, s.State, nextStart(s)))
			continue
		}
		fmt.Fprintln(out, s.PID)
	}
	return errors.Join(errs...)
}

// hasProcess reports whether the process of the stage runs. One that has ended keeps its
// number until there is another.
func hasProcess(s supervisor.Status) bool { return s.PID > 0 && !isGone(s.State) }

// isGone reports whether a state is one without a process.
func isGone(state string) bool {
	switch state {
	case supervisor.Down, lifecycle.BackingOff.String(), lifecycle.Failed.String(), lifecycle.Stopped.String():
		return true
	}
	return false
}

// nextStart returns when a stage without a process gets one.
func nextStart(s supervisor.Status) string {
	if hasProcess(s) || s.NextStart.IsZero() {
		return ""
	}
	if left := time.Until(s.NextStart); left > 0 {
		return fmt.Sprintf(" (next start in %s)", max(left, time.Second).Round(time.Second))
	}
	return " (starting)"
}

// colourOf returns green for what serves or could, and red for what does not.
func colourOf(state string) colour {
	switch {
	case state == lifecycle.Serving.String() || state == lifecycle.StandingBy.String():
		return green
	case isGone(state):
		return red
	}
	return yellow
}

func dash(text string) string { return cmp.Or(text, "-") }

// remarks is what has no column.
func remarks(s supervisor.Status) []string {
	var lines []string
	if s.Attached {
		lines = append(lines, s.Stage+" is a process that was started by hand; this host never kills it")
	}
	if granted := s.Grants.String(); granted != "{}" {
		lines = append(lines, s.Stage+" is granted "+granted)
	}
	if !s.Required {
		lines = append(lines, s.Stage+" is not required: the server is ready without it")
	}
	if s.Emulates != "" {
		lines = append(lines, fmt.Sprintf("%s serves as Kubernetes %s until catena upgrade finalize %[1]s", s.Stage, s.Emulates))
	}
	if s.StandbyFailure != "" {
		lines = append(lines, fmt.Sprintf("%s has no standby: %s", s.Stage, s.StandbyFailure))
	}
	if p := s.Probation; p != nil && p.Canary != nil {
		lines = append(lines, canaryRemark(s.Stage, *p))
	} else if p != nil {
		lines = append(lines, fmt.Sprintf("%s is on probation for %s: %d of %d requests have failed; %s would take over again",
			s.Stage, time.Until(p.Until).Round(time.Second), p.Failed, p.Requests, p.From))
	}
	if l := s.LastSwap; l != nil {
		line := fmt.Sprintf("last swap of %s %s ago: %s", s.Stage, age(l.At), l.Result)
		if l.Reason != "" {
			line += ": " + l.Reason
		}
		lines = append(lines, line)
	}
	if s.Failure != "" {
		lines = append(lines, "last failure of "+s.Failure)
	}
	return lines
}

func age(since time.Time) string {
	if since.IsZero() {
		return "-"
	}
	return time.Since(since).Round(time.Second).String()
}
