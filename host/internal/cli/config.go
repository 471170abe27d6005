package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/catena-dev/catena/host/internal/admin"
	"github.com/catena-dev/catena/host/internal/config"
	"github.com/catena-dev/catena/host/internal/declared"
	"github.com/catena-dev/catena/host/internal/printable"
	"github.com/catena-dev/catena/host/internal/problems"
)

func configCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Write, check or show the configuration",
	}
	cmd.AddCommand(configInitCommand(), configValidateCommand(), configShowCommand(), configSchemaCommand())
	return cmd
}

func configValidateCommand() *cobra.Command {
	var flags configFlags
	var withStages bool
	var output string
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
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkOutput(output, "text", "json"); err != nil {
				return err
			}
			if err := flags.adopt(cmd.Context()); err != nil {
				return err
			}
			wrong := validate(cmd.Context(), &flags, nil, withStages)
			if err := printValidity(cmd, output, &flags, wrong); err != nil {
				return err
			}
			if len(wrong) > 0 {
				return exitCode(1)
			}
			return nil
		},
	}
	flags.register(cmd)
	registerOutput(cmd, &output, "text", "json")
	cmd.Flags().BoolVar(&withStages, "with-stages", false, "start each stage's binary and have it check its own configuration")
	return cmd
}

// printValidity prints errors on standard error, and otherwise which configuration has none. As
// JSON, all of it goes to standard output.
func printValidity(cmd *cobra.Command, format string, flags *configFlags, wrong []error) error {
	if format == "json" {
		result := admin.Validity{Valid: len(wrong) == 0, Errors: []admin.ConfigError{}}
		for _, err := range wrong {
			e := admin.ConfigError{Message: err.Error()}
			var p *config.Problem
			if errors.As(err, &p) {
				e = admin.ConfigError{Source: p.Source, Line: p.Line, Key: p.Key, Message: p.Message}
			}
			result.Errors = append(result.Errors, e)
		}
		return printJSON(cmd.OutOrStdout(), result)
	}
	for _, err := range wrong {
		printable.Fprintln(cmd.ErrOrStderr(), err)
	}
	if len(wrong) > 0 {
		return nil
	}
	what := "the configuration"
	if flags.host != nil {
		what += " of the running host"
	}
	if files := flags.options().Files; len(files) > 0 {
		what += " (" + strings.Join(files, ", ") + ")"
	} else if flags.host == nil && !flags.given() {
		what = "the default configuration"
	}
	_, err := printable.Fprintln(cmd.OutOrStdout(), what, "is valid")
	return err
}

func configShowCommand() *cobra.Command {
	var flags configFlags
	var output, file string
	var showSecrets bool
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Print the effective configuration and where each value came from",
		Long: `Print every value that is in effect and where it came from. If there are errors, they
follow on standard error, the values that are wrong are left out, and the exit code is 1.

Secrets are shown as ***: all values of stages.NAME.env, and those below stages.NAME.config
that the stage's schema marks as writeOnly or as a password. To know its schema, the
stage's binary is started, asked, and ended; if it cannot be, the whole block is a secret.`,
		Example: `  catena config show --config /etc/catena/catena.yaml
  catena config show --show-secrets --out effective.txt`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkOutput(output, "text", "json"); err != nil {
				return err
			}
			if err := flags.adopt(cmd.Context()); err != nil {
				return err
			}
			cfg, err := flags.inspect()
			if cfg == nil {
				return problems.List(err)
			}
			_, flagsErr := declared.CheckFlags(cmd.Context(), cfg)
			settings := cfg.Effective()
			if !showSecrets {
				maskSecrets(cmd.Context(), cfg, settings, cmd.ErrOrStderr())
			}
			if err := writeOut(cmd, file, func(w io.Writer) error { return printSettings(w, output, settings) }); err != nil {
				return err
			}
			return problems.List(errors.Join(err, problems.Locate(cfg, flagsErr)))
		},
	}
	flags.register(cmd)
	registerOutput(cmd, &output, "text", "json")
	registerOut(cmd, &file)
	cmd.Flags().BoolVar(&showSecrets, "show-secrets", false, "show secret values; no binary is started then")
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
		return printJSON(out, rows)
	}
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	printable.Fprintf(w, "KEY\tVALUE\tFROM\n")
	for _, s := range settings {
		source := s.Source
		if s.Line > 0 {
			source = fmt.Sprintf("%s:%d", s.Source, s.Line)
		}
		printable.Fprintf(w, "%s\t%s\t%s\n", s.Key, s.Text(), source)
	}
	return w.Flush()
}
