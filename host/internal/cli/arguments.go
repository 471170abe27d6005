package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/catena-dev/catena/host/internal/suggest"
)

// noArgs refuses arguments.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%s takes no arguments, and got %q", called(cmd), args[0])
	}
	return nil
}

// wantArgs takes exactly as many arguments as what describes.
func wantArgs(count int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > count {
			return fmt.Errorf("%s takes %s, and got %q too: %s", called(cmd), what, args[count], synopsis(cmd))
		}
		return wantSomeArgs(count, what)(cmd, args)
	}
}

// wantSomeArgs takes at least as many arguments as what describes.
func wantSomeArgs(count int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < count {
			return fmt.Errorf("%s needs %s: %s", called(cmd), what, synopsis(cmd))
		}
		return nil
	}
}

// mayHaveArg takes one argument or none.
func mayHaveArg(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > 1 {
			return wantArgs(1, "at most "+what)(cmd, args)
		}
		return nil
	}
}

// called returns what a command is called below the root.
func called(cmd *cobra.Command) string {
	return strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()+" ")
}

// synopsis returns the whole command line, such as "catena swap STAGE".
func synopsis(cmd *cobra.Command) string {
	return strings.TrimSuffix(cmd.CommandPath(), cmd.Name()) + cmd.Use
}

// refuseUnknown makes errors of subcommands and arguments that a command below cmd, itself
// included, does not have.
func refuseUnknown(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		refuseUnknown(sub)
	}
	switch {
	case cmd.Name() == "help":
		cmd.RunE, cmd.Run = help, nil
	case cmd.HasSubCommands() && !strings.Contains(cmd.Use, " "): // it takes no arguments of its own
		cmd.Args, cmd.RunE = cobra.ArbitraryArgs, onlySubcommands
		cmd.DisableFlagsInUseLine = true
	case cmd.HasParent() && cmd.Parent().Name() == "completion":
		cmd.Args = noArgs
	}
}

// onlySubcommands prints the help of a command that does nothing by itself.
func onlySubcommands(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return unknownCommand(cmd, args[0])
	}
	return cmd.Help()
}

// help prints the help of the command that the arguments name.
func help(cmd *cobra.Command, args []string) error {
	found := cmd.Root()
	for _, name := range args {
		next, _, err := found.Find([]string{name})
		if err != nil || next == found {
			return unknownCommand(found, name)
		}
		found = next
	}
	found.InitDefaultHelpFlag()
	return found.Help()
}

func unknownCommand(parent *cobra.Command, name string) error {
	var names []string
	for _, c := range parent.Commands() {
		if c.IsAvailableCommand() || c.Name() == "help" {
			names = append(names, c.Name())
		}
	}
	if len(names) == 0 {
		return fmt.Errorf("%s has no subcommands, and got %q", parent.CommandPath(), name)
	}
	if meant, ok := meantCommands[name]; ok && !parent.HasParent() {
		return fmt.Errorf("%s has no subcommand %q: that is %s", parent.CommandPath(), name, meant)
	}
	if best := suggest.DidYouMean(name, names); best != "" {
		return fmt.Errorf("%s has no subcommand %q%s", parent.CommandPath(), name, best)
	}
	return fmt.Errorf("%s has no subcommand %q; it has %s", parent.CommandPath(), name, strings.Join(names, ", "))
}

// badFlag explains an error of the flags.
func badFlag(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	var invalid *pflag.InvalidValueError
	switch {
	case errors.As(err, &unknown):
	case errors.As(err, &invalid):
		name, want := invalid.GetFlag().Name, suggest.Value(invalid.Unwrap())
		return fmt.Errorf("%s: --%s: invalid value %q: %w", called(cmd), name, invalid.GetValue(), want)
	default:
		return fmt.Errorf("%s: %w", called(cmd), err)
	}
	if cmd.HasSubCommands() && cmd.Flags().NArg() > 0 { // the flag is one of the command that was meant
		return unknownCommand(cmd, cmd.Flags().Arg(0))
	}
	if meant, ok := meantFlags[unknown.GetSpecifiedName()]; ok && hasFlag(cmd, meant) {
		return fmt.Errorf("%s: %w: that is %s", called(cmd), err, meant)
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, "--"+f.Name) })
	return fmt.Errorf("%s: %w%s", called(cmd), err, suggest.DidYouMean("--"+unknown.GetSpecifiedName(), names))
}

// hasFlag reports whether a command has the flag with which a text begins, as "--set" of "--set KEY=VALUE".
func hasFlag(cmd *cobra.Command, text string) bool {
	name, _, _ := strings.Cut(strings.TrimLeft(text, "-"), " ")
	return cmd.Flags().Lookup(name) != nil || len(name) == 1 && cmd.Flags().ShorthandLookup(name) != nil
}
