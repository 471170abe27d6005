package cli

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/catena-dev/catena/host/internal/admin"
	"github.com/catena-dev/catena/host/internal/datadir"
	"github.com/catena-dev/catena/host/internal/dev"
	"github.com/catena-dev/catena/host/internal/printable"
	"github.com/catena-dev/catena/host/internal/process"
)

func devCommand() *cobra.Command {
	var flags configFlags
	cmd := &cobra.Command{
		Use:   "dev STAGE_DIR...",
		Short: "Build stages and swap them into a running host whenever their sources change",
		Long: `Build the main package in each directory, swap it into the host that runs on the data
directory, and do so again whenever its Go sources change: its own, those of packages that
it imports and that are at work on here too, embedded files, go.mod. A build that fails
is shown, and what runs goes on; so it does if the new process does not become ready, or
ends within ten seconds.
The stage must be in the chain already.

The binaries are in DATA_DIR/dev, where the host finds them if it has to start a process
again. It goes back to the configured ones when it is started anew. Ctrl-C ends.`,
		Example: `  catena dev ./stages/hello
  catena dev --data-dir /tmp/catena ./hello ./tenancy`,
		Args: wantSomeArgs(1, "the directory of a stage"),
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := flags.dirs()
			if err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			client := &admin.Client{DataDir: cfg.DataDir, RuntimeDir: cfg.RuntimeDir}
			_, uid, err := client.Source(ctx)
			if err == nil {
				err = mayAct(uid) // it executes what is in the data directory
			}
			if err != nil {
				return err
			}
			return dev.Run(ctx, dev.Options{
				Dirs: args, Out: datadir.Dev(cfg.DataDir),
				Say: func(text string) { printable.Fprintln(cmd.OutOrStdout(), printable.Safe(printable.Lines(text))) },
				Swap: func(ctx context.Context, stage, binary string) (string, error) {
					digest, err := process.Digest(binary)
					if err != nil {
						return "", err
					}
					swapped, err := client.Swap(ctx, admin.SwapRequest{Stage: stage, Binary: binary, SHA256: digest})
					return fmt.Sprintf("swapped %s → %s, ready after %s", swapped.From, swapped.To,
						swapped.Ready.Round(time.Millisecond)), err
				},
			})
		},
	}
	flags.registerHost(cmd)
	cmd.ValidArgsFunction = func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return nil, cobra.ShellCompDirectiveFilterDirs
	}
	return cmd
}
