package cli

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// eachCommand calls do with every command, also those that cobra adds.
func eachCommand(cmd *cobra.Command, do func(*cobra.Command)) {
	do(cmd)
	for _, sub := range cmd.Commands() {
		eachCommand(sub, do)
	}
}

func TestUnknownCommands(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"statsu":                          `catena has no subcommand "statsu" (did you mean "status"?)`,
		"config shwo":                     `catena config has no subcommand "shwo" (did you mean "show"?)`,
		"config shwo --config catena.yml": `catena config has no subcommand "shwo" (did you mean "show"?)`,
		"config everything":               `catena config has no subcommand "everything"; it has init, schema, show, validate`,
		"stage nwe hello":                 `catena stage has no subcommand "nwe" (did you mean "new"?)`,
		"help confg":                      `catena has no subcommand "confg" (did you mean "config"?)`,
		"help config shwo":                `catena config has no subcommand "shwo" (did you mean "show"?)`,
		"help status now":                 `catena status has no subcommands, and got "now"`,
		"completion bsh":                  `catena completion has no subcommand "bsh" (did you mean "bash"?)`,
		"completion bash now":             `completion bash takes no arguments, and got "now"`,
	} {
		out, _, err := run(t, strings.Fields(args)...)
		if err == nil || err.Error() != want || out != "" {
			t.Errorf("%s: %v, want %s; printed %q", args, err, want, out)
		}
	}
	for _, args := range []string{"", "config", "stage", "help", "help config show", "completion"} {
		if out, _, err := run(t, strings.Fields(args)...); err != nil || !strings.Contains(out, "Usage:") {
			t.Errorf("%q prints no help: %v\n%s", args, err, out)
		}
	}
}

func TestWrongArguments(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"swap":                       "swap needs the name of a stage: catena swap STAGE",
		"swap core hello":            `swap takes the name of a stage, and got "hello" too: catena swap STAGE`,
		"explain GET":                "explain needs a method and a path: catena explain METHOD PATH",
		"dev":                        "dev needs the directory of a stage: catena dev STAGE_DIR...",
		"stage new":                  "stage new needs the name of the stage: catena stage new NAME",
		"stage check":                "stage check needs the binary of a stage: catena stage check BINARY",
		"config schema":              "config schema needs the name of a stage: catena config schema STAGE",
		"config show now":            `config show takes no arguments, and got "now"`,
		"version 2":                  `version takes no arguments, and got "2"`,
		"kubeconfig":                 "kubeconfig needs a user: catena kubeconfig --user NAME [--group NAME]... [--out FILE]",
		"status --dat-dir x":         `status: unknown flag: --dat-dir (did you mean "--data-dir"?)`,
		"swap core --probation soon": `swap: invalid argument "soon" for "--probation" flag: time: invalid duration "soon"`,
	} {
		if _, _, err := run(t, strings.Fields(args)...); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", args, err, want)
		}
	}
}

// No message counts arguments, and no help shows the type of a variable in Go.
func TestHelpHasPlaceholders(t *testing.T) {
	t.Parallel()
	goType := regexp.MustCompile(`^(strings?|stringArray|stringSlice|u?ints?|durations?|float64|value)$`)
	eachCommand(rootCommand("unknown"), func(cmd *cobra.Command) {
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if name, _ := pflag.UnquoteUsage(f); goType.MatchString(name) {
				t.Errorf("%s --%s: the placeholder is %q", cmd.CommandPath(), f.Name, name)
			}
		})
		for _, args := range [][]string{{}, {"a"}, {"a", "b", "c", "d"}} {
			if err := cmd.ValidateArgs(args); err != nil && strings.Contains(err.Error(), "arg(s)") {
				t.Errorf("%s %q: %v", cmd.CommandPath(), args, err)
			}
		}
	})
}

func TestVersion(t *testing.T) {
	t.Parallel()
	long, _, err := run(t, "version")
	if err != nil || !strings.HasPrefix(long, "catena unknown\nkubernetes v") {
		t.Errorf("version: %q, %v", long, err)
	}
	if out, _, err := run(t, "--version"); err != nil || out != long {
		t.Errorf("--version: %q, %v", out, err)
	}
}

// Each flag with a value offers values, files or directories in the shell, or nothing, and
// each command the same for its arguments.
func TestEverythingCompletes(t *testing.T) {
	t.Parallel()
	files := []string{"stage check --config", "stage check --sdk", "stage new --sdk", "swap --binary"}
	eachCommand(rootCommand("unknown"), func(cmd *cobra.Command) {
		if cmd.HasSubCommands() || cmd.Name() == "help" || cmd.Parent() != nil && cmd.Parent().Name() == "completion" {
			return
		}
		if cmd.ValidArgsFunction == nil && called(cmd) != "stage check" {
			t.Errorf("%s offers files as its arguments", cmd.CommandPath())
		}
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			_, complete := cmd.GetFlagCompletionFunc(f.Name)
			if !complete && f.NoOptDefVal == "" && len(f.Annotations) == 0 && !slices.Contains(files, called(cmd)+" --"+f.Name) {
				t.Errorf("%s --%s offers files", cmd.CommandPath(), f.Name)
			}
		})
	})
}
