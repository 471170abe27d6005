package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
	var server, output, file string
	cmd := &cobra.Command{
		Use:   "kubeconfig --user NAME [--group NAME]... [--out FILE]",
		Short: "Write a kubeconfig with a client certificate for an identity",
		Long: `Write a kubeconfig with a new client certificate and its key, valid for a year, signed by the
authority in the data directory. What the identity may do is up to the server's
authorization. A certificate cannot be revoked: only the owner of the file of --out can
read it, which takes the place of one that exists. Without --out, it is printed.`,
		Example: `  catena kubeconfig --user jane --group developers --out jane.kubeconfig
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
			return writeOut(cmd, file, func(w io.Writer) error {
				if output == "json" {
					return printJSON(w, json.RawMessage(out))
				}
				_, err := w.Write(out)
				return err
			})
		},
	}
	flags.registerHost(cmd)
	registerOutput(cmd, &output, "yaml", "json")
	registerOut(cmd, &file)
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
