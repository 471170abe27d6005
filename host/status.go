package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

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
since when, its process and version, how often it was restarted, and why the
latest process that failed did.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkOutput(output, "text", "json"); err != nil {
				return err
			}
			cfg, err := flags.loadForFolders()
			if err != nil {
				return err
			}
			last := ""
			for {
				var all []supervisor.Status
				if err := callAdmin(cmd.Context(), cfg, http.MethodGet, "/status", nil, &all); err != nil {
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
func fingerprint(all []supervisor.Status) string {
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

func printStatus(out io.Writer, format string, all []supervisor.Status) error {
	if format == "json" {
		enc := json.NewEncoder(out)
		enc.SetIndent("", "  ")
		return enc.Encode(all)
	}
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "STAGE\tSTATE\tFOR\tGENERATION\tPID\tVERSION\tRESTARTS\tCLAIMS")
	for _, s := range all {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%s\t%d\t%d\n", s.Stage, s.State, age(s.Since), s.Generation, s.PID, s.Version, s.Restarts, s.Claims)
		for _, g := range s.Others {
			fmt.Fprintf(w, "  other\t%s\t%s\t%s\t%d\t\t\t\n", g.State, age(g.Since), g.Generation, g.PID)
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, s := range all {
		if s.Attached {
			if _, err := fmt.Fprintf(out, "%s is a process that was started by hand; this host never kills it\n", s.Stage); err != nil {
				return err
			}
		}
		if s.Failure != "" {
			if _, err := fmt.Fprintf(out, "last failure of %s\n", s.Failure); err != nil {
				return err
			}
		}
	}
	return nil
}

func age(since time.Time) string {
	if since.IsZero() {
		return "-"
	}
	return time.Since(since).Round(time.Second).String()
}

func swapCommand() *cobra.Command {
	var flags configFlags
	var binary string
	cmd := &cobra.Command{
		Use:   "swap STAGE",
		Short: "Replace the process of a stage of a running host by a new one",
		Long: `Start a new process of a stage beside the one that serves, wait until it is ready,
move new requests to it at one point in time, and let the old one finish what it
has. If the new one does not become ready, the old one stays and the command says
why. With --binary the new process is started from that file, and so are later
restarts, until the host ends.`,
		Example: `  catena swap core
  catena swap hello --binary ./catena-stage-hello-v2`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := flags.loadForFolders()
			if err != nil {
				return err
			}
			if binary != "" {
				if binary, err = filepath.Abs(binary); err != nil {
					return err
				}
			}
			var swapped supervisor.Swapped
			err = callAdmin(cmd.Context(), cfg, http.MethodPost, "/swap", swapRequest{Stage: args[0], Binary: binary}, &swapped)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "stage %s swapped: %s → %s (version %s, ready after %s)\n",
				swapped.Stage, swapped.From, swapped.To, swapped.Version, swapped.Ready.Round(time.Millisecond))
			return err
		},
	}
	flags.register(cmd)
	cmd.Flags().StringVar(&binary, "binary", "", "`file` of the new process; the present one if not given")
	_ = cmd.MarkFlagFilename("binary")
	return cmd
}
