// Package cli is the command line of catena: the commands, their flags, what they print
// and their exit codes. Commands for a running host call it on its admin socket.
package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/catena-dev/catena/host/internal/handover"
	"github.com/catena-dev/catena/host/internal/printable"
	"github.com/catena-dev/catena/host/internal/process"
)

// Main runs the command line of the process and returns its exit code. Version is that of
// Catena.
func Main(version string) int { return process.WithoutOrphans(func() int { return execute(version) }) }

func execute(version string) int {
	// Libraries of Kubernetes register flags for every program that has them, which cobra makes flags of every command.
	inherited, err := handover.FromEnvironment()
	if err != nil {
		printable.Fprintf(os.Stderr, "%s %v\n", coloursOf(os.Stderr).paint(red, "catena:"), err)
		return 1
	}
	ctx := handover.NewContext(context.Background(), inherited)
	libraries := pflag.CommandLine
	pflag.CommandLine = pflag.NewFlagSet(os.Args[0], pflag.ContinueOnError)
	if filepath.Base(os.Args[0]) == kubeAPIServerName {
		return runKubeAPIServer(ctx, kubeAPIServerName, version, os.Args[1:], libraries)
	}
	root := wholeCommand(version, libraries)
	err = orHandOver(ctx, root.ExecuteContext(ctx))
	if err == nil {
		return 0
	}
	var code exitCode
	if errors.As(err, &code) {
		return int(code)
	}
	printable.Fprintf(os.Stderr, "%s %v\n", coloursOf(os.Stderr).paint(red, "catena:"), err)
	if coded := (*codedError)(nil); errors.As(err, &coded) {
		return coded.code
	}
	return 1
}

// orHandOver goes on with another program if that is why the server has ended, or with the one before if the server has failed
// after it had taken over. Without one it returns the error.
func orHandOver(ctx context.Context, err error) error {
	if next := (*handover.Handover)(nil); errors.As(err, &next) {
		return next.Exec()
	}
	if err != nil {
		return handover.FromContext(ctx).Back(err)
	}
	return nil
}

// Command returns the command line of a version of Catena, for documents of it.
func Command(version string) *cobra.Command { return wholeCommand(version, pflag.CommandLine) }

// wholeCommand returns the command line. The flags are those that libraries of Kubernetes register for every program.
func wholeCommand(version string, libraries *pflag.FlagSet) *cobra.Command {
	root := rootCommand(version)
	apiserver := apiserverCommand(version, libraries)
	apiserver.GroupID = root.Groups()[0].ID
	root.AddCommand(apiserver)
	return root
}

// exitCode is an error whose message has been printed already.
type exitCode int

func (c exitCode) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

// codedError is an error whose exit code is not 1.
type codedError struct {
	error
	code int
}

func (e *codedError) Unwrap() error { return e.error }

// withCode gives the error of f an exit code, if it has none.
func withCode(code int, f func() error) error {
	err := f()
	if err == nil || errors.As(err, new(exitCode)) {
		return err
	}
	return &codedError{err, code}
}

func rootCommand(version string) *cobra.Command {
	root := &cobra.Command{
		Use:   "catena",
		Short: "A Kubernetes API server whose parts are processes of their own",
		Long: `Catena is a Kubernetes API server whose parts, the stages, are processes of their own: each can
crash, be limited, upgraded or replaced by itself, while clients go on.

A first session, in two terminals:

  catena serve

  export KUBECONFIG=$PWD/data/admin.kubeconfig
  kubectl get namespaces`,
		Version:       version,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetOut(os.Stdout)
	root.SetVersionTemplate(versionsOf(version).String())
	root.SetFlagErrorFunc(badFlag)
	addGroups(root, []group{
		{"Run a server:", []*cobra.Command{
			serveCommand(version), configCommand(), kubeconfigCommand(), joinCommand(), tokenCommand(),
		}},
		{"Look at a running server:", []*cobra.Command{
			statusCommand(), uiCommand(), logsCommand(), chainCommand(), explainCommand(), supportCommand(version),
		}},
		{"Change a running server:", []*cobra.Command{
			swapCommand(), reloadCommand(), upgradeCommand(), shadowCommand(),
		}},
		{"Back up:", []*cobra.Command{snapshotCommand()}},
		{"Write stages:", []*cobra.Command{stageCommand(version), devCommand(), pluginsCommand(), lockCommand()}},
	})
	root.AddCommand(versionCommand(version))
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	completeNothingElse(root)
	refuseUnknown(root)
	return root
}

// group are commands that the help has below a title.
type group struct {
	title    string
	commands []*cobra.Command
}

func addGroups(root *cobra.Command, groups []group) {
	for _, g := range groups {
		root.AddGroup(&cobra.Group{ID: g.title, Title: g.title})
		for _, c := range g.commands {
			c.GroupID = g.title
		}
		root.AddCommand(g.commands...)
	}
}
