package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/catena-dev/catena/host/internal/admin"
	"github.com/catena-dev/catena/host/internal/printable"
)

func reloadCommand() *cobra.Command {
	var flags configFlags
	var output string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "reload",
		Short: "Have a running host read its configuration again",
		Long: `Have the host that runs on the data directory read its configuration again, the same
files, environment and flags that it was started with, and apply it: stages are
swapped, added, removed and put into another order without a failed request. It
prints what was done. The flags of this command only look for the host. A configuration that is wrong, or that changes what only a
restart can change, changes nothing, and the command says why. SIGHUP does the same.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkOutput(output, "text", "json"); err != nil {
				return err
			}
			client, err := flags.client()
			if err != nil {
				return err
			}
			var result admin.Reload
			err = within(cmd.Context(), timeout, "nothing has changed: the configuration has not been applied",
				func(ctx context.Context) (err error) {
					result, err = client.Reload(ctx)
					return err
				})
			if err != nil {
				return err
			}
			if output == "json" {
				return printJSON(cmd.OutOrStdout(), result)
			}
			_, err = printable.Fprintln(cmd.OutOrStdout(), "configuration", printable.Safe(printable.Lines(result.String())))
			return err
		},
	}
	flags.registerHost(cmd)
	registerOutput(cmd, &output, "text", "json")
	registerTimeout(cmd, &timeout)
	return cmd
}
