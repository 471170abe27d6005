package cli

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/catena-dev/catena/host/internal/config"
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
		"start":                           `catena has no subcommand "start": that is "catena serve"`,
		"rollback core":                   `catena has no subcommand "rollback": that is "catena swap STAGE --rollback"`,
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
		"serve --port 7":             "serve: unknown flag: --port: that is --secure-port",
		"serve --etcd-servers x":     "serve: unknown flag: --etcd-servers: that is --set store.endpoints=URL",
		"version --port 7":           "version: unknown flag: --port",
		"swap core --probation soon": `swap: --probation: invalid value "soon": want a duration, such as 90s or 5m`,
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

// Whatever is misspelt, a command, a flag or one of several values: the error says what was meant.
func TestMisspelt(t *testing.T) {
	t.Parallel()
	// misspell swaps the last two letters, or adds one if they are alike.
	misspell := func(word string) string {
		n := len(word)
		if n < 3 || word[n-1] == word[n-2] {
			return word + "x"
		}
		return word[:n-2] + word[n-1:] + word[n-2:n-1]
	}
	fails := func(want string, args ...string) {
		t.Helper()
		out, problems, err := run(t, args...)
		if text := fmt.Sprint(out, problems, err); err == nil || !strings.Contains(text, want) {
			t.Errorf("catena %s: %s, want %s", strings.Join(args, " "), text, want)
		}
	}
	eachCommand(rootCommand("unknown"), func(cmd *cobra.Command) {
		path := strings.Fields(called(cmd))
		switch {
		case !cmd.HasParent():
			path = nil
		case cmd.Hidden:
			return
		case !strings.Contains(cmd.Parent().Use, " "): // which is a stage's name otherwise
			args := append(path[:len(path)-1:len(path)-1], misspell(cmd.Name()))
			fails(fmt.Sprintf("(did you mean %q?)", cmd.Name()), args...)
		}
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if cmd.HasSubCommands() || cmd.DisableFlagParsing || f.Hidden || len(f.Name) < 3 {
				return
			}
			fails(fmt.Sprintf("(did you mean %q?)", "--"+f.Name), append(slices.Clone(path), "--"+misspell(f.Name))...)
		})
		if f := cmd.Flags().Lookup("output"); f != nil {
			args := strings.Fields(called(cmd) + " --output " + misspell(f.DefValue))
			for len(args) < 6 && cmd.ValidateArgs(args[len(path)+2:]) != nil {
				args = append(args, "x")
			}
			fails(fmt.Sprintf("(did you mean %q?)", f.DefValue), args...)
		}
	})
	for _, key := range config.Keys() {
		for _, value := range key.Choices {
			name := strings.ReplaceAll(key.Path, "*", "core")
			fails(fmt.Sprintf("(did you mean %q?)", value), "config", "validate", "--set", name+"="+misspell(value))
		}
	}
}

// What is meant by other programs' words is there, and is called that here.
func TestMeantIsThere(t *testing.T) {
	t.Parallel()
	root := rootCommand("unknown")
	for word, meant := range meantCommands {
		for _, line := range regexp.MustCompile(`"catena ([a-z ]+)`).FindAllStringSubmatch(meant, -1) {
			if cmd, rest, err := root.Find(strings.Fields(line[1])); err != nil || !cmd.Runnable() || len(rest) > 0 {
				t.Errorf("%s: there is no %q", word, line[1])
			}
		}
		if cmd, _, err := root.Find([]string{word}); err == nil && cmd != root {
			t.Errorf("%s is a command", word)
		}
	}
	for word, meant := range meantFlags {
		found := false
		eachCommand(root, func(cmd *cobra.Command) { found = found || hasFlag(cmd, meant) })
		if !found {
			t.Errorf("--%s: no command has %s", word, meant)
		}
	}
}
