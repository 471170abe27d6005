package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/catena-dev/catena/host/internal/datadir"
	"github.com/catena-dev/catena/host/internal/pki"
)

func kubeconfigCommand() *cobra.Command {
	var flags configFlags
	var id pki.Identity
	var server, output string
	cmd := &cobra.Command{
		Use:   "kubeconfig --user NAME [--group NAME]...",
		Short: "Print a kubeconfig with a client certificate for an identity",
		Long: `Print a kubeconfig with a new client certificate, valid for a year, signed by the
authority in the data directory. What the identity may do is up to the server's
authorization. A certificate cannot be revoked.`,
		Example: `  catena kubeconfig --user jane --group developers > jane.kubeconfig
  kubectl --kubeconfig jane.kubeconfig auth whoami`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkOutput(output, "yaml", "json"); err != nil {
				return err
			}
			if id.User == "" {
				return fmt.Errorf("kubeconfig needs a user: %s", synopsis(cmd))
			}
			cfg, err := flags.dirs()
			if err != nil {
				return err
			}
			p, err := pki.Load(datadir.PKI(cfg.DataDir))
			if err != nil {
				return err
			}
			if server == "" {
				if server, err = lastServer(cfg.DataDir); err != nil {
					return err
				}
			}
			out, err := p.Kubeconfig(id, server, nil)
			if err == nil && output == "json" {
				out, err = yaml.YAMLToJSON(out)
			}
			if err != nil {
				return err
			}
			if output == "json" {
				return printJSON(cmd.OutOrStdout(), json.RawMessage(out))
			}
			_, err = cmd.OutOrStdout().Write(out)
			return err
		},
	}
	flags.registerHost(cmd)
	registerOutput(cmd, &output, "yaml", "json")
	fs := cmd.Flags()
	fs.StringVar(&id.User, "user", "", "`name` of the user (required)")
	fs.StringArrayVar(&id.Groups, "group", nil, "`name` of a group of the user; may be given more than once")
	fs.StringVar(&server, "server", "", "`URL` of the server; that of the last run if not given")
	return cmd
}

// lastServer returns where the last run on the data directory served.
func lastServer(dataDir string) (string, error) {
	path := datadir.AdminKubeconfig(dataDir)
	cfg, err := clientcmd.LoadFromFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("%s does not exist: start the server once, or give --server", path)
	}
	if err != nil {
		return "", fmt.Errorf("read the server's address: %w", err)
	}
	for _, c := range cfg.Clusters {
		return c.Server, nil
	}
	return "", fmt.Errorf("%s names no server: give --server", path)
}
