package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/catena-dev/catena/host/internal/admin"
	"github.com/catena-dev/catena/host/internal/config"
	"github.com/catena-dev/catena/host/internal/datadir"
	"github.com/catena-dev/catena/host/internal/declared"
	"github.com/catena-dev/catena/host/internal/printable"
	"github.com/catena-dev/catena/host/internal/snapshot"
	"github.com/catena-dev/catena/sdk/kubeversion"
)

func snapshotCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "snapshot",
		Short: "Save and restore all that a host with an embedded etcd has",
		Long: `Save and restore all that a host with an embedded etcd has: the objects, and the authorities and keys in
DATA_DIR/pki. It is a tar archive with checksums; etcd.db in it is a snapshot that etcd's own tools read. For an external
etcd, use etcdctl snapshot.`,
	}
	cmd.AddCommand(snapshotSaveCommand(), snapshotStatusCommand(), snapshotRestoreCommand())
	return cmd
}

func snapshotSaveCommand() *cobra.Command {
	var flags configFlags
	var output string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "save FILE",
		Short: "Save a snapshot while the host runs",
		Long: `Save a snapshot of the running host into a file, which is replaced if it exists. All secrets of the cluster are
in it, in the form in which etcd has them, and so are its keys: only the owner of the file can read it. Files of your
own, such as the keys of --encryption-provider-config, are not in it.`,
		Example: `  catena snapshot save /var/backups/catena-$(date +%F).tar`,
		Args:    wantArgs(1, "a file"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkOutput(output, "text", "json"); err != nil {
				return err
			}
			file, err := filepath.Abs(args[0])
			if err == nil {
				err = checkFile(file)
			}
			if err != nil {
				return err
			}
			var m snapshot.Manifest
			err = within(cmd.Context(), timeout, "there is no snapshot", func(ctx context.Context) error {
				client, source, err := flags.snapshotSource(ctx)
				if err != nil {
					return err
				}
				watched, stop := client.Watch(ctx)
				defer stop()
				if m, err = snapshot.Save(watched, source, file); err != nil && watched.Err() != nil {
					return context.Cause(watched)
				}
				return err
			})
			if err != nil {
				return err
			}
			return printSnapshot(cmd, output, file+" saved: ", m)
		},
	}
	flags.registerHost(cmd)
	registerOutput(cmd, &output, "text", "json")
	registerTimeout(cmd, &timeout)
	return cmd
}

// snapshotSource finds the running host.
func (f *configFlags) snapshotSource(ctx context.Context) (*admin.Client, snapshot.Source, error) {
	client, err := f.client()
	if err != nil {
		return nil, snapshot.Source{}, err
	}
	dirs, err := datadir.Runtime(client.RuntimeDir, client.DataDir)
	if err != nil {
		return nil, snapshot.Source{}, err
	}
	_, err = f.adoptFrom(ctx, client)
	if admin.IsNotRunning(err) {
		return nil, snapshot.Source{}, fmt.Errorf("no host runs on the data directory %s: a snapshot is taken while it runs", client.DataDir)
	}
	if err != nil {
		return nil, snapshot.Source{}, fmt.Errorf("read the configuration of the host that runs on the data directory %s: %w", client.DataDir, err)
	}
	cfg, err := f.load()
	if err != nil {
		return nil, snapshot.Source{}, err
	}
	if err := needEmbedded(cfg); err != nil {
		return nil, snapshot.Source{}, err
	}
	for _, dir := range dirs {
		storage := declared.StoreOptions(cfg, cfg.DataDir, dir)
		if _, err := os.Stat(storage.Socket); err == nil {
			return client, snapshot.Source{DataDir: cfg.DataDir, Storage: storage, Prefix: cfg.Store.Prefix,
				Release: kubeversion.Release()}, nil
		}
	}
	return nil, snapshot.Source{}, fmt.Errorf("the host that runs on %s has no etcd yet: wait until it serves", cfg.DataDir)
}

func needEmbedded(cfg *config.Config) error {
	if len(cfg.Store.Endpoints) > 0 {
		return errors.New("store.endpoints is set: etcd is not embedded; use etcdctl snapshot, and keep DATA_DIR/pki of one host too")
	}
	return nil
}

func snapshotStatusCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "status FILE",
		Short: "Check a snapshot and say what it is of",
		Args:  wantArgs(1, "a file"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkOutput(output, "text", "json"); err != nil {
				return err
			}
			m, err := snapshot.Read(args[0])
			if err != nil {
				return err
			}
			return printSnapshot(cmd, output, "", m)
		},
	}
	registerOutput(cmd, &output, "text", "json")
	return cmd
}

func printSnapshot(cmd *cobra.Command, output, prefix string, m snapshot.Manifest) error {
	if output == "json" {
		return printJSON(cmd.OutOrStdout(), m)
	}
	_, err := printable.Fprintf(cmd.OutOrStdout(), "%s%s\n", prefix, describeSnapshot(m))
	return err
}

func describeSnapshot(m snapshot.Manifest) string {
	cluster := ""
	if m.Cluster != "" {
		cluster = " of cluster " + m.Cluster
	}
	return fmt.Sprintf("snapshot of %s%s, Kubernetes %s, to revision %d with %d keys",
		m.Time.Local().Format(time.RFC3339), cluster, m.Release, m.Etcd.Revision, m.Etcd.Keys)
}

func snapshotRestoreCommand() *cobra.Command {
	var flags configFlags
	var replace bool
	var output string
	cmd := &cobra.Command{
		Use:   "restore FILE",
		Short: "Make a snapshot the contents of a data directory",
		Long: `Make a snapshot the contents of a data directory on which no host runs. What is there already is an error, unless
--replace moves it into a directory beside it. The snapshot is checked before anything is written.

Revisions continue above all that clients have seen: those that watch are told to list again.`,
		Example: `  catena snapshot restore /var/backups/catena-2026-11-22.tar --data-dir /var/lib/catena`,
		Args:    wantArgs(1, "a file"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkOutput(output, "text", "json"); err != nil {
				return err
			}
			cfg, err := flags.dirs()
			if err != nil {
				return err
			}
			if err := needEmbedded(cfg); err != nil {
				return err
			}
			restored, err := snapshot.Restore(cfg.DataDir, args[0], replace)
			if err != nil {
				return err
			}
			if output == "json" {
				return printJSON(cmd.OutOrStdout(), restored)
			}
			out := cmd.OutOrStdout()
			if restored.Replaced != "" {
				printable.Fprintln(out, "earlier data are in", restored.Replaced)
			}
			_, err = printable.Fprintf(out, "%s restored: %s; start the host with catena serve\n", cfg.DataDir,
				describeSnapshot(restored.Manifest))
			return err
		},
	}
	flags.registerHost(cmd)
	registerOutput(cmd, &output, "text", "json")
	cmd.Flags().BoolVar(&replace, "replace", false, "move data and keys that are there already into a directory beside them")
	return cmd
}
