package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
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
			problems := validate(cmd.Context(), &flags, nil, withStages)
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
func validate(ctx context.Context, flags *configFlags, attach attachments, withStages bool) []error {
	cfg, err := flags.inspect()
	if cfg == nil {
		return split(err)
	}
	parsed, flagsErr := checkFlags(ctx, cfg)
	problems := slices.Concat(split(err), split(checkBinaries(cfg, attach)), split(located(cfg, flagsErr)))
	if withStages && parsed != nil && cfg.Order != nil {
		problems = append(problems, split(located(cfg, validateWithStages(ctx, cfg, parsed.List())))...)
	}
	return problems
}

// checkBinaries joins what is wrong with the binaries of all stages, whether or not
// they make a chain. It leaves out what another mistake keeps from being known.
func checkBinaries(cfg *config.Config, attach attachments) error {
	names := cfg.Order
	if names == nil {
		names = slices.Sorted(maps.Keys(cfg.Stages))
	}
	var errs []error
	for _, name := range names {
		unknown := cfg.Hides("stages."+name+".binary") || cfg.Stages[name].Binary == "" && cfg.Hides("pluginDirs")
		if unknown || attach[name] != "" {
			continue
		}
		_, err := findBinary(cfg, name)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// keyPattern is a key in an error of those who know nothing of layers: a flag anywhere,
// or a key of a stage at the beginning. The item of a list has the place of the list.
var keyPattern = regexp.MustCompile(`\bapiserver\.[a-z0-9]+(?:-[a-z0-9]+)*|^stages\.[^:,\[]+`)

// located puts in front of each of the joined errors where the first key in it that is
// set was set. Libraries and stages, which know nothing of layers, name the key alone.
func located(cfg *config.Config, err error) error {
	all := split(err)
	for i, e := range all {
		if where := place(cfg, e.Error()); where != "" {
			all[i] = fmt.Errorf("%s: %w", where, e)
		}
	}
	if len(all) == 1 {
		return all[0]
	}
	return errors.Join(all...)
}

// place is empty if no layer has set anything that the message names.
func place(cfg *config.Config, message string) string {
	for _, key := range keyPattern.FindAllString(message, -1) {
		where := cfg.Where(key)
		if cfg.IsSet(key) || strings.HasPrefix(key, "stages.") && where != "default" {
			return where
		}
	}
	return ""
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
		Long: `Print every value that is in effect and where it came from. If there are errors, they
follow on standard error, the values that are wrong are left out, and the exit code is 1.
Binaries are not looked for.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkOutput(output, "text", "json"); err != nil {
				return err
			}
			cfg, err := flags.inspect()
			if cfg == nil {
				return listProblems(err)
			}
			_, flagsErr := checkFlags(cmd.Context(), cfg)
			if err := printSettings(cmd.OutOrStdout(), output, cfg.Effective()); err != nil {
				return err
			}
			return listProblems(errors.Join(err, located(cfg, flagsErr)))
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
