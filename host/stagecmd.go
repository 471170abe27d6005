package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/catena-dev/catena/host/internal/stagecheck"
	"github.com/catena-dev/catena/sdk/klogr"
)

func stageCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "stage",
		Short: "Write and check stages",
		Long:  "What authors of stages need. docs/tutorial.md goes from nothing to a running stage.",
		Args:  cobra.NoArgs,
	}
	cmd.AddCommand(stageCheckCommand())
	return cmd
}

func stageCheckCommand() *cobra.Command {
	opts := stagecheck.Options{Requests: 10000, Timeout: 30 * time.Second}
	var output, config string
	cmd := &cobra.Command{
		Use:   "check BINARY",
		Short: "Check whether a stage keeps the protocol, whatever it is written in",
		Long: `Launch a stage as the host does, and check from outside what docs/protocol.md asks of
it, from the handshake to its end. Nothing else is needed: no configuration of the
host, no store, no other stage.

Requests go to the paths that the stage claims, or to those of --path; they are GET,
POST, OPTIONS and DELETE, so do not let a stage be checked that works on real data. What can
only be checked with the stage's help is checked on the endpoints that it serves below
--endpoints, see section 9 of docs/protocol.md, and skipped if there are none.

The exit code is 0 if no check has failed.`,
		Example: `  catena stage check bin/catena-stage-hello --config hello.yaml
  catena stage check bin/catena-stage-hello --endpoints /hello/check -o junit > hello.xml`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkOutput(output, "text", "json", "junit"); err != nil {
				return err
			}
			opts.Binary = args[0]
			var err error
			if opts.Config, err = stageConfig(config); err != nil {
				return err
			}
			return runStageCheck(cmd, opts, output)
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&config, "config", "", "`file` (YAML or JSON) with the stage's own configuration, what config: holds in the host's")
	fs.StringVar(&opts.Name, "name", "", "`name` that the stage must have (default: of the binary, catena-stage-NAME)")
	fs.StringSliceVar(&opts.Paths, "path", nil, "`path` to send requests to (default: the paths that the stage claims)")
	fs.StringVar(&opts.Endpoints, "endpoints", "", "`path` below which the stage serves check endpoints")
	fs.IntVar(&opts.Requests, "requests", opts.Requests, "`number` of requests over which memory must stay level")
	fs.DurationVar(&opts.Timeout, "timeout", opts.Timeout, "`time` that each step may take")
	fs.StringSliceVar(&opts.Only, "only", nil, "`names` of the checks to make (default: all)")
	_ = cmd.RegisterFlagCompletionFunc("only", cobra.FixedCompletions(stagecheck.Names(), cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.MarkFlagFilename("config", "yaml", "yml", "json")
	registerOutput(cmd, &output, "text", "json", "junit")
	return cmd
}

// stageConfig reads a stage's own configuration, as JSON.
func stageConfig(file string) (json.RawMessage, error) {
	if file == "" {
		return nil, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("--config: %w", err)
	}
	config, err := yaml.YAMLToJSON(text)
	if err != nil {
		return nil, fmt.Errorf("--config %s: %w", file, err)
	}
	return config, nil
}

func runStageCheck(cmd *cobra.Command, opts stagecheck.Options, output string) error {
	// gRPC, which logs through klog here, has a lot to say about connections that end.
	if err := klogr.Install(hclog.NewNullLogger(), "", ""); err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	if output == "text" {
		opts.Progress = func(r stagecheck.Result) { fmt.Fprint(out, r) }
	}
	report, err := stagecheck.Run(cmd.Context(), opts)
	if err != nil {
		return err
	}
	if err := writeStageReport(out, report, output); err != nil {
		return err
	}
	if report.Count(stagecheck.Failed) > 0 {
		return exitCode(1)
	}
	return nil
}

func writeStageReport(out io.Writer, report *stagecheck.Report, output string) error {
	switch output {
	case "json":
		return report.WriteJSON(out)
	case "junit":
		return report.WriteJUnit(out)
	}
	_, err := fmt.Fprint(out, report.Summary())
	return err
}
