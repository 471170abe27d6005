package cli

import (
	"fmt"

	"github.com/spf13/cobra"
)

func reloadCommand() *cobra.Command {
	var flags configFlags
	cmd := &cobra.Command{
		Use:   "reload",
		Short: "Have a running host read its configuration again",
		Long: `Have the host that runs on the data folder read its configuration again, the same
files, environment and flags that it was started with, and apply it: stages are
swapped, added, removed and put into another order without a failed request. It
prints what was done. A configuration that is wrong, or that changes what only a
restart can change, changes nothing, and the command says why. SIGHUP does the same.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := flags.client()
			if err != nil {
				return err
			}
			result, err := client.Reload(cmd.Context())
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), "configuration", result.String())
			return err
		},
	}
	flags.register(cmd)
	return cmd
}
