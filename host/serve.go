package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"

	"github.com/catena-dev/catena/host/internal/config"
)

// servingFlags are the flags of kube-apiserver that serve has under the same
// name; all others are given with --set apiserver.NAME=VALUE or in a file.
var servingFlags = map[string]string{
	"bind-address":    "IP `address` to listen on",
	"secure-port":     "`port` to serve HTTPS on; 0 for any free one",
	"token-auth-file": "`file` with static tokens",
	"client-ca-file":  "`file` with the authorities of client certificates",
}

func serveCommand() *cobra.Command {
	var flags configFlags
	var attached []string
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the server in the foreground",
		Long: `Run the server in the foreground until SIGINT or SIGTERM, then let requests finish
and stop every stage; a second signal ends it at once. SIGHUP reads the
configuration again and swaps the stages whose part of it, or whose binary, has
changed; what cannot change while the server runs is reported and changes nothing.
The first start makes a
certificate authority, the certificates and keys of the server, and
DATA_DIR/admin.kubeconfig; later starts reuse them.

Messages go to standard error. Standard output gets one line for each stage that
comes up and, when the server is ready, the lines to paste for a first session.`,
		Example: `  catena serve --config configs/catena.yaml
  catena serve --config configs/catena.yaml --secure-port 7443 --data-dir /var/lib/catena
  catena serve --config configs/catena.yaml --set apiserver.audit-policy-file=audit.yaml`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for name := range servingFlags {
				if f := cmd.Flags().Lookup(name); f.Changed {
					flags.set = append(flags.set, "apiserver."+name+"="+f.Value.String())
				}
			}
			cfg, err := flags.load()
			if err != nil {
				return listProblems(err)
			}
			attach, err := parseAttachments(attached)
			if err != nil {
				return err
			}
			ctx, stop := shutdownContext(cmd.Context())
			defer stop()
			return serve(ctx, cfg, flags.load, attach, cmd.OutOrStdout())
		},
	}
	flags.register(cmd)
	cmd.Flags().StringArrayVar(&attached, "attach", nil,
		"use the running process of a stage that was started with --debug instead of starting one: `NAME`, or NAME=FOLDER if --debug has a folder")
	for name, usage := range servingFlags {
		cmd.Flags().String(name, "", usage)
	}
	return cmd
}

// listProblems puts each of several problems on a line of its own.
func listProblems(err error) error {
	all := split(err)
	if len(all) < 2 {
		return err
	}
	return fmt.Errorf("the configuration has %d errors:\n%w", len(all), err)
}

// shutdownContext ends with the first SIGINT or SIGTERM. The second ends the
// process at once; the stages notice that and end too.
func shutdownContext(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		select {
		case s := <-signals:
			cancel(fmt.Errorf("%w: %s", errSignal, s))
		case <-ctx.Done():
			return
		}
		<-signals
		os.Exit(130)
	}()
	return ctx, func() { cancel(nil) }
}

// errSignal is why the server ends when it was asked to.
var errSignal = errors.New("signal")

// newLogger returns the logger of the host and of others that it logs for: the
// stages, Kubernetes' code in the host and etcd.
func newLogger(l config.Log) (host, others hclog.Logger) {
	host = hclog.New(&hclog.LoggerOptions{
		Name: "catena", Level: hclog.LevelFromString(l.Level), JSONFormat: l.Format == "json",
		Output: os.Stderr, IndependentLevels: true,
	})
	others = host.ResetNamed("catena")
	others.SetLevel(hclog.LevelFromString(l.StageLevel))
	return host, others
}
