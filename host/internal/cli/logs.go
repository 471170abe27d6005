package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/catena-dev/catena/host/internal/admin"
	"github.com/catena-dev/catena/host/internal/printable"
)

func logsCommand() *cobra.Command {
	var flags configFlags
	var req admin.LogRequest
	var since time.Duration
	cmd := &cobra.Command{
		Use:   "logs [STAGE]...",
		Short: "Print the latest log lines of a running host and its stages",
		Long: `Print the log lines of the host that runs on the data directory and of its stages, or
only those of the stages that are named, as the host has written them to standard error.
The name host stands for the host itself, with Kubernetes' code and etcd in it. The host
keeps the latest 4 MiB in memory. At which level those that are named log, which decides
what there is, a line on standard error says.

With --follow, go on with the lines that come, until the host ends. If they are not read
as fast as they come, some are lost, and a line on standard error says how many.`,
		Example: `  catena logs core --level warn --since 10m
  catena logs -f --tail 20`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if req.Tail < -1 {
				return fmt.Errorf("--tail %d: it takes a number of lines, or -1 for all", req.Tail)
			}
			client, err := flags.client()
			if err != nil {
				return err
			}
			req.Names = args
			if len(args) > 0 {
				if err := sayLevels(cmd.Context(), client, args, cmd.ErrOrStderr()); err != nil {
					return err
				}
			}
			if since > 0 {
				req.Since = time.Now().Add(-since)
			}
			return printLogs(cmd.Context(), client, req, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags.registerHost(cmd)
	cmd.Flags().BoolVarP(&req.Follow, "follow", "f", false, "go on with the lines that come")
	cmd.Flags().IntVar(&req.Tail, "tail", -1, "`number` of the latest lines to begin with, -1 for all that are kept")
	cmd.Flags().StringVar(&req.Level, "level", "", "least `level` of the lines: trace, debug, info, warn or error")
	cmd.Flags().DurationVar(&since, "since", 0, "leave out what is older than this `age`, such as 10m")
	_ = cmd.RegisterFlagCompletionFunc("level", completeLevels)
	_ = cmd.RegisterFlagCompletionFunc("tail", cobra.NoFileCompletions)
	_ = cmd.RegisterFlagCompletionFunc("since", cobra.NoFileCompletions)
	cmd.ValidArgsFunction = withHost(flags.completeStages(math.MaxInt))
	cmd.AddCommand(logLevelCommand())
	return cmd
}

// sayLevels says which lines the named logs do not have.
func sayLevels(ctx context.Context, client *admin.Client, names []string, messages io.Writer) error {
	all, err := client.LogLevels(ctx)
	if err != nil {
		return err
	}
	for _, l := range all {
		if slices.Contains(names, l.Name) && l.Level != "trace" {
			printable.Fprintf(messages, "%s logs at level %s; catena logs level %[1]s LEVEL changes that\n", l.Name, l.Level)
		}
	}
	return nil
}

func printLogs(ctx context.Context, client *admin.Client, req admin.LogRequest, out, messages io.Writer) error {
	return client.Logs(ctx, req, func(c admin.LogChunk) error {
		if c.Lost > 0 {
			printable.Fprintf(messages, "%d lines are lost: they were not read in time\n", c.Lost)
		}
		_, err := io.WriteString(out, printable.Text(c.Text))
		return err
	})
}

func logLevelCommand() *cobra.Command {
	var flags configFlags
	var output string
	cmd := &cobra.Command{
		Use:   "level [NAME LEVEL]",
		Short: "Print the log levels of a running host and its stages, or set one",
		Long: `Print the least level of what the host and each stage log or, with a name and a level,
set one: that of the host itself, which has the name host, or that of a stage. It holds
until the configuration is reloaded or the host ends, also for new processes of the stage;
log.level and log.stageLevel of the configuration are for longer.`,
		Example: `  catena logs level
  catena logs level core debug`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return wantArgs(2, "a name and a level, or nothing")(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkOutput(output, "text", "json"); err != nil {
				return err
			}
			client, err := flags.client()
			if err != nil {
				return err
			}
			if len(args) == 2 {
				return client.SetLogLevel(cmd.Context(), admin.LogLevel{Name: args[0], Level: args[1]})
			}
			all, err := client.LogLevels(cmd.Context())
			if err != nil {
				return err
			}
			return printLogLevels(cmd.OutOrStdout(), output, all)
		},
	}
	flags.registerHost(cmd)
	registerOutput(cmd, &output, "text", "json")
	stages := withHost(flags.completeStages(1))
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
		if len(args) == 1 {
			return completeLevels(cmd, args, word)
		}
		return stages(cmd, args, word)
	}
	return cmd
}

func printLogLevels(out io.Writer, format string, all []admin.LogLevel) error {
	if format == "json" {
		return printJSON(out, all)
	}
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	_, err := printable.Fprintf(w, "NAME\tLEVEL\n")
	for _, l := range all {
		printable.Fprintf(w, "%s\t%s\n", l.Name, l.Level)
	}
	return errors.Join(err, w.Flush())
}

func completeLevels(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return []string{"trace", "debug", "info", "warn", "error"}, cobra.ShellCompDirectiveNoFileComp
}

// withHost adds the host to the names that complete to stages.
func withHost(stages cobra.CompletionFunc) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
		names, directive := stages(cmd, args, word)
		if slices.Contains(args, admin.HostLog) || cmd.Name() == "level" && len(args) > 0 {
			return names, directive
		}
		return append(names, admin.HostLog), directive
	}
}
