package cli

import (
	"fmt"
	"io"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/catena-dev/catena/sdk/kubeversion"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// versions is what "catena version" prints.
type versions struct {
	Catena        string `json:"catena"`
	Kubernetes    string `json:"kubernetes"`
	StageProtocol int    `json:"stageProtocol"`
	Go            string `json:"go"`
	Platform      string `json:"platform"`
	// Handover reports whether it can take the place of a running host.
	Handover bool `json:"handover"`
}

func versionsOf(catena string) versions {
	return versions{catena, kubeversion.Release(), stagev1.ProtocolVersion, runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH, true}
}

func (v versions) String() string {
	return fmt.Sprintf("catena %s\nkubernetes %s\nstage protocol %d\n%s %s\n", v.Catena, v.Kubernetes, v.StageProtocol, v.Go, v.Platform)
}

func versionCommand(version string) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the versions of Catena, of the Kubernetes API and of the stage protocol",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkOutput(output, "text", "json"); err != nil {
				return err
			}
			v := versionsOf(version)
			if output == "json" {
				return printJSON(cmd.OutOrStdout(), v)
			}
			_, err := io.WriteString(cmd.OutOrStdout(), v.String())
			return err
		},
	}
	registerOutput(cmd, &output, "text", "json")
	return cmd
}
