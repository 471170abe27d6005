package cli

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/catena-dev/catena/sdk/kubeversion"
	"github.com/catena-dev/catena/sdk/stagev1"
)

func versionCommand(version string) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the versions of Catena, of the Kubernetes API and of the stage protocol",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "catena %s\nkubernetes %s\nstage protocol %d\n%s %s/%s\n",
				version, kubeversion.Release(), stagev1.ProtocolVersion, runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
}
