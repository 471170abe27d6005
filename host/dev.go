package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/catena-dev/catena/host/internal/dev"
	"github.com/catena-dev/catena/host/internal/supervisor"
)

func devCommand() *cobra.Command {
	var flags configFlags
	cmd := &cobra.Command{
		Use:   "dev STAGE_DIR...",
		Short: "Build stages and swap them into a running host whenever their sources change",
		Long: `Build the main package in each folder, swap it into the host that runs on the data
folder, and do so again whenever its Go sources change: its own, those of packages that
it imports and that are at work on here too, embedded files, go.mod. A build that fails
is shown, and what runs goes on; so it does if the new process does not become ready.
The stage must be in the chain already.

The binaries are in DATA_DIR/dev, where the host finds them if it has to start a process
again. It goes back to the configured ones when it is started anew. Ctrl-C ends.`,
		Example: `  catena dev ./stages/hello
  catena dev --data-dir /tmp/catena ./hello ./tenancy`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := flags.loadForFolders()
			if err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			var status hostStatus
			if err := callAdmin(ctx, cfg, http.MethodGet, "/status", nil, &status); err != nil {
				return err
			}
			return dev.Run(ctx, dev.Options{
				Dirs: args, Out: filepath.Join(cfg.DataDir, "dev"),
				Say: func(text string) { fmt.Fprintln(cmd.OutOrStdout(), text) },
				Swap: func(ctx context.Context, stage, binary string) (string, error) {
					var swapped supervisor.Swapped
					err := callAdmin(ctx, cfg, http.MethodPost, "/swap", swapRequest{Stage: stage, Binary: binary}, &swapped)
					return fmt.Sprintf("swapped %s → %s, ready after %s", swapped.From, swapped.To, swapped.Ready.Round(time.Millisecond)), err
				},
			})
		},
	}
	flags.register(cmd)
	return cmd
}
