package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/catena-dev/catena/host/internal/admin"
	"github.com/catena-dev/catena/host/internal/supervisor"
)

func statusCommand() *cobra.Command {
	var flags configFlags
	var output string
	var watch bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Print where each stage of a running host stands",
		Long: `Print where each stage of the host that runs on the data folder stands: its state,
since when, its process and version, how often it was restarted, its standby, how the
latest swap ended and what it is on probation for, why the latest process that failed
did, and how the latest reload of the configuration went. With -o json also the
lifecycle signals that the server has come to.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkOutput(output, "text", "json"); err != nil {
				return err
			}
			client, err := flags.client()
			if err != nil {
				return err
			}
			last := ""
			for {
				all, err := client.Status(cmd.Context())
				if err != nil {
					return err
				}
				if now := fingerprint(all); now != last {
					last = now
					if err := printStatus(cmd.OutOrStdout(), output, all); err != nil {
						return err
					}
				}
				if !watch || !pause(cmd.Context(), time.Second/4) {
					return nil
				}
			}
		},
	}
	flags.register(cmd)
	registerOutput(cmd, &output, "text", "json")
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "go on, and print again whenever something has changed")
	return cmd
}

// fingerprint is the same for two states that an operator would not tell apart.
func fingerprint(all admin.Status) string {
	all.Stages = slices.Clone(all.Stages)
	for i, st := range all.Stages {
		if st.Probation != nil {
			p := *st.Probation
			p.Requests = 0 // every request counts
			all.Stages[i].Probation = &p
		}
	}
	b, err := json.Marshal(all)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

func printStatus(out io.Writer, format string, all admin.Status) error {
	if format == "json" {
		return printJSON(out, all)
	}
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "STAGE\tSTATE\tFOR\tGENERATION\tPID\tVERSION\tRESTARTS\tCLAIMS")
	for _, s := range all.Stages {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%s\t%d\t%d\n", s.Stage, s.State, age(s.Since), s.Generation, s.PID, s.Version, s.Restarts, s.Claims)
		if s.Standby != nil {
			printGeneration(w, "standby", *s.Standby)
		}
		for _, g := range s.Others {
			printGeneration(w, "other", g)
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
	}
	if all.LastReload == nil {
		return nil
	}
	_, err := fmt.Fprintf(out, "configuration read %s ago %s\n", age(all.LastReload.At), all.LastReload)
	return err
}

func printGeneration(w io.Writer, role string, g supervisor.Generation) {
	fmt.Fprintf(w, "  %s\t%s\t%s\t%s\t%d\t\t\t\n", role, g.State, age(g.Since), g.Generation, g.PID)
}

// remarks is what has no column.
func remarks(s supervisor.Status) []string {
	var lines []string
	if s.Attached {
		lines = append(lines, s.Stage+" is a process that was started by hand; this host never kills it")
	}
	if !s.Required {
		lines = append(lines, s.Stage+" is not required: the server is ready without it")
	}
	if s.StandbyFailure != "" {
		lines = append(lines, fmt.Sprintf("%s has no standby: %s", s.Stage, s.StandbyFailure))
	}
	if p := s.Probation; p != nil {
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
