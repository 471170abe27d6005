package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/catena-dev/catena/host/internal/config"
	"github.com/catena-dev/catena/host/internal/datadir"
	"github.com/catena-dev/catena/host/internal/declared"
	"github.com/catena-dev/catena/host/internal/join"
	"github.com/catena-dev/catena/host/internal/pki"
	"github.com/catena-dev/catena/host/internal/printable"
	"github.com/catena-dev/catena/host/internal/server"
)

func tokenCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Tokens with which another host joins the cluster",
		Long: `Tokens with which another host gets the authorities and keys of this one (catena join), to serve the same
objects from the same etcd. The etcd of the configuration has them encrypted under the token, which it does not have.

The end of a token keeps hosts from joining, and deletes the encrypted keys from etcd's present state only. With the token, anyone who
can read etcd's history opens them until that is compacted (5 to 10 minutes after the end, with the default of store.compactionInterval), and
anyone who has a backup of etcd, or its files, of the time until then opens them for as long as these exist.`,
	}
	cmd.AddCommand(tokenCreateCommand(), tokenListCommand(), tokenDeleteCommand())
	return cmd
}

func tokenCreateCommand() *cobra.Command {
	var flags configFlags
	var ttl time.Duration
	var file string
	cmd := &cobra.Command{
		Use:   "create",
		Short: "Print a new token",
		Long: `Print a new token, or write it into the file of --out. Its owner, if able to read etcd, has the keys of the cluster: it is
printed this once and kept nowhere.`,
		Example: `  catena token create --config /etc/catena/catena.yaml
  catena token create --ttl 15m --out token`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if ttl < time.Second {
				return fmt.Errorf("--ttl %s: a token lives for a second at least", ttl)
			}
			return flags.withCluster(cmd.Context(), func(ctx context.Context, cfg *config.Config, cluster *join.Cluster) error {
				token, err := createToken(ctx, cfg, cluster, ttl)
				if err != nil {
					return err
				}
				return writeOut(cmd, file, func(w io.Writer) error {
					_, err := printable.Fprintln(w, token)
					return err
				})
			})
		},
	}
	flags.register(cmd)
	registerOut(cmd, &file)
	cmd.Flags().DurationVar(&ttl, "ttl", 2*time.Hour, "how `long` the token is valid")
	return cmd
}

func createToken(ctx context.Context, cfg *config.Config, cluster *join.Cluster, ttl time.Duration) (join.Token, error) {
	dir := datadir.PKI(cfg.DataDir)
	shared, err := pki.ReadShared(dir)
	if err != nil {
		return join.Token{}, err
	}
	files := pki.FilesIn(dir)
	own, err := join.ReadKeys(join.Files{SigningKey: files.ServiceAccountKey,
		VerifyingKeys: []string{files.ServiceAccountPublicKey}, ClientCA: files.CA})
	if err != nil {
		return join.Token{}, err
	}
	self, err := server.Self()
	if err != nil {
		return join.Token{}, err
	}
	token, err := cluster.CreateToken(ctx, shared, own, self, ttl)
	if _, mismatch := errors.AsType[*join.MismatchError](err); mismatch {
		return token, fmt.Errorf("%w; if apiserver.client-ca-file and apiserver.service-account-*-file name files outside of %s, copy these to the other host", err, dir)
	}
	return token, err
}

func tokenListCommand() *cobra.Command {
	var flags configFlags
	var output string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "Print the tokens that have not expired, without their secrets",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkOutput(output, "text", "json"); err != nil {
				return err
			}
			return flags.withCluster(cmd.Context(), func(ctx context.Context, _ *config.Config, cluster *join.Cluster) error {
				tokens, err := cluster.Tokens(ctx)
				if err != nil {
					return err
				}
				if output == "json" {
					return printJSON(cmd.OutOrStdout(), tokens)
				}
				return printTokens(cmd.OutOrStdout(), tokens)
			})
		},
	}
	flags.register(cmd)
	registerOutput(cmd, &output, "text", "json")
	return cmd
}

func printTokens(out io.Writer, tokens []join.Issued) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	printable.Fprintf(w, "ID\tEXPIRES\tHOST\n")
	for _, t := range tokens {
		printable.Fprintf(w, "%s\t%s\t%s\n", t.ID, t.Expires.Local().Format(time.RFC3339), t.Host)
	}
	return w.Flush()
}

func tokenDeleteCommand() *cobra.Command {
	var flags configFlags
	cmd := &cobra.Command{
		Use:   "delete ID",
		Short: "End a token before it expires",
		Long: `End a token before it expires: no host can join with it any more. What was encrypted under it is in etcd's history until that is
compacted, and in backups of etcd; a token that the wrong people may have is a reason to exchange the keys of the cluster.`,
		Example: `  catena token delete 5794d1d58c63`,
		Args:    wantArgs(1, "the ID of a token, as catena token list prints it"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return flags.withCluster(cmd.Context(), func(ctx context.Context, _ *config.Config, cluster *join.Cluster) error {
				return cluster.DeleteToken(ctx, args[0])
			})
		},
	}
	flags.register(cmd)
	return cmd
}

// clusterTimeout bounds what a command does in etcd.
const clusterTimeout = 30 * time.Second

// withCluster calls f with the cluster in the store of the configuration, which is that of the running host if none is given.
func (f *configFlags) withCluster(ctx context.Context, do func(context.Context, *config.Config, *join.Cluster) error) error {
	if err := f.adopt(ctx); err != nil {
		return err
	}
	cfg, err := f.load()
	if err != nil {
		return err
	}
	return inCluster(ctx, cfg, func(ctx context.Context, cluster *join.Cluster) error { return do(ctx, cfg, cluster) })
}

func inCluster(ctx context.Context, cfg *config.Config, do func(context.Context, *join.Cluster) error) error {
	if cfg.APIServerDefaults == config.KubernetesDefaults {
		return errors.New("a server with the command line of kube-apiserver has its keys in files of its own: copy these to the other host")
	}
	if len(cfg.Store.Endpoints) == 0 {
		return errors.New("store.endpoints: is not set, and the embedded etcd serves one host alone: several hosts share an external etcd")
	}
	ctx, cancel := context.WithTimeout(ctx, clusterTimeout)
	defer cancel()
	client, err := declared.StoreOptions(cfg, cfg.DataDir, "").Dial(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	return do(ctx, join.Open(client, cfg.Store.Prefix))
}
