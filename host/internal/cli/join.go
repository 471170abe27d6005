package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/catena-dev/catena/host/internal/config"
	"github.com/catena-dev/catena/host/internal/datadir"
	"github.com/catena-dev/catena/host/internal/join"
	"github.com/catena-dev/catena/host/internal/pki"
	"github.com/catena-dev/catena/host/internal/printable"
	"github.com/catena-dev/catena/host/internal/store"
	"github.com/catena-dev/catena/sdk/kubeversion"
)

func joinCommand() *cobra.Command {
	var flags configFlags
	cmd := &cobra.Command{
		Use:   "join TOKEN",
		Short: "Take the keys of a cluster, to serve beside its hosts",
		Long: `Take the authorities and keys of a cluster from the etcd of the configuration, with a token that "catena token
create" has printed on one of its hosts, and put them into DATA_DIR/pki. Then "catena serve" with the same configuration
serves beside the other hosts. Nothing is written if anything is wrong. With "-", the token is read from standard input:
arguments can be read by all users of the machine.`,
		Example: `  ssh first catena token create | catena join - --config catena.yaml && catena serve --config catena.yaml
  catena join - --config catena.yaml < token`,
		Args: wantArgs(1, "a token, which catena token create prints on a host of the cluster"),
		RunE: func(cmd *cobra.Command, args []string) error {
			text := args[0]
			if text == "-" {
				line, err := io.ReadAll(io.LimitReader(cmd.InOrStdin(), 4096))
				if err != nil {
					return fmt.Errorf("read the token from standard input: %w", err)
				}
				text = string(line)
			}
			token, err := join.ParseToken(text)
			if err != nil {
				return err
			}
			cfg, err := flags.load()
			if err != nil {
				return err
			}
			withToken := func(ctx context.Context, c *join.Cluster) error { return joinCluster(ctx, cfg, c, token) }
			if err := inCluster(cmd.Context(), cfg, withToken); err != nil {
				return err
			}
			_, err = printable.Fprintf(cmd.OutOrStdout(), "joined cluster %s: its keys are in %s; start this host with catena serve\n", token.Cluster, datadir.PKI(cfg.DataDir))
			return err
		},
	}
	flags.register(cmd)
	return cmd
}

// joinCluster writes the keys of the cluster into the data directory, on which no host may run.
func joinCluster(ctx context.Context, cfg *config.Config, cluster *join.Cluster, token join.Token) error {
	files, err := cluster.Keys(ctx, token, kubeversion.Release())
	if err != nil {
		return err
	}
	lock, err := store.LockDir(cfg.DataDir)
	if err != nil {
		return err
	}
	defer lock.Release()
	return pki.WriteShared(datadir.PKI(cfg.DataDir), files)
}
