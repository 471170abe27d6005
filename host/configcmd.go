package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"

	"github.com/catena-dev/catena/host/internal/config"
	"github.com/catena-dev/catena/host/internal/front"
	"github.com/catena-dev/catena/sdk/klogr"
)

func configCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Check or show the configuration",
		Args:  cobra.NoArgs,
	}
	cmd.AddCommand(configValidateCommand(), configShowCommand(), configSchemaCommand())
	return cmd
}

func configValidateCommand() *cobra.Command {
	var flags configFlags
	var withStages bool
	cmd := &cobra.Command{
		Use:   "validate",
		Short: "Print every error of the configuration",
		Long: `Print every error of the configuration, with file and key: unknown keys, wrong
types, stages that make no chain, binaries that cannot be started, flags of
kube-apiserver that it does not have or that do not fit together. Nothing is
started, created or changed. The exit code is 1 if there is an error.

What is below stages.NAME.config only the stage knows. With --with-stages, each stage's
binary is started, asked for the schema of its configuration and for its own opinion,
and ended; none is configured, and nothing is served.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			problems := validate(cmd.Context(), &flags, withStages)
			for _, p := range problems {
				fmt.Fprintln(cmd.ErrOrStderr(), p)
			}
			if len(problems) > 0 {
				return exitCode(1)
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), "the configuration is valid")
			return err
		},
	}
	flags.register(cmd)
	cmd.Flags().BoolVar(&withStages, "with-stages", false, "start each stage's binary and have it check its own configuration")
	return cmd
}

// validate returns everything that is wrong, one error for each line to print.
func validate(ctx context.Context, flags *configFlags, withStages bool) []error {
	cfg, err := flags.load()
	if err != nil {
		return split(err)
	}
	_, chainErr := resolve(cfg)
	parsed, flagsErr := checkFlags(ctx, cfg)
	problems := append(split(chainErr), split(located(cfg, flagsErr))...)
	if withStages && parsed != nil {
		problems = append(problems, split(located(cfg, validateWithStages(ctx, cfg, parsed.List())))...)
	}
	return problems
}

// located puts in front of each of the joined errors where the key that it begins
// with was set. Libraries and stages, which know nothing of layers, name the key alone.
func located(cfg *config.Config, err error) error {
	all := split(err)
	for i, e := range all {
		key, _, _ := strings.Cut(e.Error(), ":")
		key, _, _ = strings.Cut(key, ",")
		if !strings.HasPrefix(key, "apiserver.") && !strings.HasPrefix(key, "stages.") {
			continue
		}
		key, _, _ = strings.Cut(key, "[") // the item of a list
		if where := cfg.Where(key); where != "default" {
			all[i] = fmt.Errorf("%s: %w", where, e)
		}
	}
	if len(all) == 1 {
		return all[0]
	}
	return errors.Join(all...)
}

// checkFlags checks the flags of kube-apiserver as a start would. What Kubernetes' code
// logs meanwhile says nothing that the errors do not. The flags are nil if they cannot
// be read.
func checkFlags(ctx context.Context, cfg *config.Config) (*front.Flags, error) {
	if err := klogr.Install(hclog.NewNullLogger(), "", ""); err != nil {
		return nil, err
	}
	flags, err := front.ParseFlags(ctx, cfg.APIServer, flagDefaults(cfg, storeOptions(cfg, cfg.DataDir, "/run"))...)
	if err != nil {
		return nil, err
	}
	return flags, flags.Validate(ctx)
}

// split takes joined errors apart.
func split(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok { //nolint:errorlint // only what errors.Join made
		var all []error
		for _, e := range joined.Unwrap() {
			all = append(all, split(e)...)
		}
		return all
	}
	if err == nil {
		return nil
	}
	return []error{err}
}

func configShowCommand() *cobra.Command {
	var flags configFlags
	var output string
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Print the effective configuration and where each value came from",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkOutput(output, "text", "json"); err != nil {
				return err
			}
			cfg, err := flags.load()
			if err != nil {
				return err
			}
			return printSettings(cmd.OutOrStdout(), output, cfg.Effective())
		},
	}
	flags.register(cmd)
	registerOutput(cmd, &output, "text", "json")
	return cmd
}

func printSettings(out io.Writer, format string, settings []config.Setting) error {
	if format == "json" {
		type row struct {
			Key    string `json:"key"`
			Value  any    `json:"value"`
			Source string `json:"source"`
			Line   int    `json:"line,omitempty"`
		}
		rows := make([]row, len(settings))
		for i, s := range settings {
			rows[i] = row{s.Key, s.Value, s.Source, s.Line}
		}
		enc := json.NewEncoder(out)
		enc.SetIndent("", "  ")
		return enc.Encode(rows)
	}
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "KEY\tVALUE\tFROM")
	for _, s := range settings {
		source := s.Source
		if s.Line > 0 {
			source = fmt.Sprintf("%s:%d", s.Source, s.Line)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", s.Key, s.Text(), source)
	}
	return w.Flush()
}
