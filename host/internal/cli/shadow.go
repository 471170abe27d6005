package cli

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/catena-dev/catena/host/internal/admin"
	"github.com/catena-dev/catena/host/internal/percent"
	"github.com/catena-dev/catena/host/internal/printable"
	"github.com/catena-dev/catena/host/internal/shadow"
)

func shadowCommand() *cobra.Command {
	var flags configFlags
	var req admin.ShadowRequest
	var sample, budget, output string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "shadow STAGE --binary FILE",
		Short: "Compare what another binary of a stage would respond to the requests of clients",
		Long: `Start the binary beside the process that serves, and ask both what a sample of the clients'
requests asks, after the clients have been served. Responses of the new process go to no client. They are
compared by structure: status, headers that clients read, objects field by field. What differs between two
responses of the old process is no difference. "catena shadow report" prints what was found, also after the end.

Reads of objects and lists, discovery and OpenAPI are compared: objects as of one version of them, lists as of
one version of the store. Watches, proxies, logs and exec are not, nor are responses of more than 4 MiB.

Writes of built-in resources are asked of both as dry runs, if every webhook that could be called declares to have no
side effects then: creations under another name, and updates whatever version the object has.

Nothing is written: of the post-start hooks of the new process only those run that start informers, its way to the
store and to the host refuses writes, and no request reaches it that could have an effect. The aggregator cannot be
shadowed, nor discovery of custom resources: both are made by controllers that write.

The comparison ends after the time of --for, with "catena shadow stop", when the new process ends and when the
stage is swapped. One stage can be shadowed at a time.`,
		Example: `  catena shadow core --binary bin/kube-1.36/catena-stage-core --for 1h --sample 10%
  catena shadow report -o html > report.html`,
		Args: wantArgs(1, "the name of a stage"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkOutput(output, "text", "json"); err != nil {
				return err
			}
			if req.Binary == "" {
				return fmt.Errorf("--binary is required: the file whose responses are compared")
			}
			if req.For <= 0 {
				return fmt.Errorf("--for %s: must be positive", req.For)
			}
			var err error
			if req.Sample, err = percent.Parse(sample, 1); err != nil {
				return fmt.Errorf("--sample: %w", err)
			}
			if req.Budget, err = percent.Parse(budget, admin.MaxBudget); err != nil {
				return fmt.Errorf("--budget: %w", err)
			}
			client, err := flags.client()
			if err != nil {
				return err
			}
			req.Stage = args[0]
			var s *shadow.Summary
			err = within(cmd.Context(), timeout, fmt.Sprintf("stage %q is not shadowed: nothing has come up",
				req.Stage), func(ctx context.Context) (err error) {
				s, err = client.Shadow(ctx, req)
				return err
			})
			if err != nil {
				return err
			}
			if output == "json" {
				return printJSON(cmd.OutOrStdout(), s)
			}
			_, err = printable.Fprintf(cmd.OutOrStdout(), "stage %s is shadowed by %s until %s; catena shadow report tells what differs\n", s.Stage, s.Binary, s.Until.Local().Format(time.RFC3339))
			return err
		},
	}
	flags.registerHost(cmd)
	registerOutput(cmd, &output, "text", "json")
	registerTimeout(cmd, &timeout)
	cmd.ValidArgsFunction = flags.completeStages(1)
	registerBinary(cmd, &req.Binary, "`file` whose responses are compared")
	cmd.Flags().StringVar(&req.SHA256, "sha256", "", "`digest` that the file must have, in hexadecimal; approves a file that is not in catena.lock")
	cmd.Flags().DurationVar(&req.For, "for", time.Hour, "`time` for which requests are compared")
	cmd.Flags().StringVar(&sample, "sample", "10%", "`share` of the requests that are compared")
	cmd.Flags().StringVar(&budget, "budget", "50%", "`share` of one CPU that comparing may take, over 100% for more than one")
	cmd.Flags().BoolVar(&req.Writes, "writes", true, "compare writes too, as dry runs")
	cmd.AddCommand(shadowReportCommand(), shadowStopCommand())
	return cmd
}

func shadowReportCommand() *cobra.Command {
	var flags configFlags
	var output string
	cmd := &cobra.Command{
		Use:   "report",
		Short: "Print what a shadow has found",
		Long: `Print in which fields of which resources the responses of the two processes have differed, how often, and
one example of each. Values that may be secret are masked: those of Secrets and of resources that the server
encrypts in the store, of fields whose names say so, and of environment variables. The report of the latest
shadow is kept until the next one begins, or the host ends.

The exit code is 0 if nothing differs, 2 if something does, and 1 if there is no report.`,
		Example: `  catena shadow report -o html > report.html`,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkOutput(output, "text", "json", "html"); err != nil {
				return err
			}
			client, err := flags.client()
			if err != nil {
				return err
			}
			r, err := client.ShadowReport(cmd.Context())
			if err != nil {
				return err
			}
			if err := printReport(cmd.OutOrStdout(), output, r); err != nil {
				return err
			}
			if len(r.Groups) > 0 {
				return exitCode(2)
			}
			return nil
		},
	}
	flags.registerHost(cmd)
	registerOutput(cmd, &output, "text", "json", "html")
	return cmd
}

func shadowStopCommand() *cobra.Command {
	var flags configFlags
	cmd := &cobra.Command{
		Use:     "stop",
		Short:   "End a shadow",
		Long:    `End the process of the shadow that runs. Its report is kept.`,
		Example: `  catena shadow stop`,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := flags.client()
			if err != nil {
				return err
			}
			r, err := client.StopShadow(cmd.Context())
			if err != nil {
				return err
			}
			_, err = printable.Fprintf(cmd.OutOrStdout(), "stage %s is not shadowed any more: %s; catena shadow report tells more\n", r.Stage, r.Counts())
			return err
		},
	}
	flags.registerHost(cmd)
	return cmd
}

func printReport(out io.Writer, format string, r *shadow.Report) error {
	switch format {
	case "json":
		return printJSON(out, r)
	case "html":
		return r.WriteHTML(out)
	}
	return r.WriteText(out)
}
