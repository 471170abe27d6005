package cli

import (
	"context"
	"errors"
	"io"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/catena-dev/catena/host/internal/config"
	"github.com/catena-dev/catena/host/internal/handover"
	"github.com/catena-dev/catena/host/internal/isolation"
	"github.com/catena-dev/catena/host/internal/printable"
	"github.com/catena-dev/catena/host/internal/problems"
	"github.com/catena-dev/catena/host/internal/process"
	"github.com/catena-dev/catena/host/internal/server"
	"github.com/catena-dev/catena/host/internal/systemd"
)

// servingFlags are the flags of kube-apiserver that serve has under the same
// name; all others are given with --set apiserver.NAME=VALUE or in a file.
var servingFlags = map[string]string{
	"bind-address":    "IP `address` to listen on",
	"secure-port":     "`port` to serve HTTPS on; 0 for any free one",
	"token-auth-file": "`file` with static tokens",
	"client-ca-file":  "`file` with the authorities of client certificates",
}

func serveCommand(version string) *cobra.Command {
	var flags configFlags
	var attached []string
	var replaceKeys, ephemeral bool
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the server in the foreground",
		Long: `Run the server in the foreground until SIGINT or SIGTERM, then let requests finish
and stop every stage; a second signal does not wait for requests, and a third does not
wait for anything. SIGHUP reads the configuration again and applies it as "catena
reload" does: what cannot change while the server runs is reported, and then nothing
changes. The first start makes a certificate authority, the certificates and keys of
the server, and DATA_DIR/admin.kubeconfig; later starts reuse them.

Without a configuration, the chain is that of Kubernetes: its stages come with the program, the
embedded etcd and all other state are in ./data, and plugins are looked for in ./plugins. With
a package, the configuration is /etc/catena/catena.yaml where there is no ./data.

With --ephemeral, for tests, all state is in a directory that goes with the server, on a free port
of this machine alone unless --secure-port and --bind-address say which. Nothing is synced to the
disk, and the server ends when the process that has started it does, however that ends.

Messages go to standard error. Standard output gets one line for each stage that
comes up and, when the server is ready, the lines to paste for a first session.`,
		Example: `  catena serve
  catena serve --config configs/catena.yaml
  catena serve --config configs/catena.yaml --secure-port 7443 --data-dir /var/lib/catena
  catena serve --config configs/catena.yaml --set apiserver.audit-policy-file=audit.yaml
  catena serve --config configs/hello.yaml --attach hello
  catena serve --ephemeral`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			reload, stopReload := hangups() // before the configuration is read
			defer stopReload()
			for _, name := range slices.Sorted(maps.Keys(servingFlags)) {
				if f := cmd.Flags().Lookup(name); f.Changed {
					flags.more = append(flags.more, config.CommandFlag{Name: "--" + name, Key: "apiserver." + name,
						Value: f.Value.String()})
				}
			}
			attach, err := parseAttachments(attached)
			if err != nil {
				return err
			}
			inherited := handover.FromContext(cmd.Context())
			ctx := cmd.Context()
			if ephemeral {
				remove, failed := flags.makeEphemeral(cmd.Flags().Changed)
				if failed != nil {
					return failed
				}
				defer func() { err = errors.Join(err, remove()) }()
				inherited = &handover.Inherited{} // it is no other program's, whose directory would be another
				var stopLooking context.CancelFunc
				ctx, stopLooking = withParent(ctx)
				defer stopLooking()
			}
			if err := flags.settle(installed); err != nil {
				return err
			}
			cfg, err := flags.load()
			if err != nil {
				return problems.List(errors.Join(validate(cmd.Context(), &flags, attach, false)...))
			}
			if inherited.OnlyCheck {
				return problems.List(errors.Join(validate(cmd.Context(), &flags, attach, true)...))
			}
			ctx, force, stop := shutdownContext(ctx)
			defer stop()
			source, err := flags.source()
			if err != nil {
				return err
			}
			service, err := inheritedService(inherited)
			if err != nil {
				return err
			}
			if err := isolation.HideMemory(); err != nil {
				return err
			}
			if len(cfg.Files) == 0 {
				printDefault(cmd.OutOrStdout(), cfg)
			}
			return server.Run(ctx, server.Options{Config: cfg, Source: source, Load: flags.load, Attach: attach,
				Out: cmd.OutOrStdout(), Reload: reload, Force: force,
				Systemd: service, Handover: inherited, ReplaceKeys: replaceKeys, Ephemeral: ephemeral, Version: version,
			})
		},
	}
	flags.register(cmd)
	cmd.Flags().StringArrayVar(&attached, "attach", nil,
		"use the running process of a stage that was started with --debug instead of starting one: `NAME`, or NAME=DIRECTORY if --debug has a directory")
	cmd.Flags().BoolVar(&replaceKeys, "replace-cluster-keys", false,
		"make the keys of this host those of the cluster in etcd; what other keys have signed is not accepted any more")
	cmd.Flags().BoolVar(&ephemeral, "ephemeral", false,
		"for tests: state in a directory that goes with the server, a free port, an end with the process that has started it")
	_ = cmd.RegisterFlagCompletionFunc("attach", flags.completeStages(math.MaxInt))
	for name, usage := range servingFlags {
		cmd.Flags().String(name, "", usage)
		if strings.Contains(usage, "`file`") {
			_ = cmd.MarkFlagFilename(name)
		}
	}
	return cmd
}

// printDefault says what is served without a configuration, and how a plugin that is there becomes part of it.
func printDefault(out io.Writer, cfg *config.Config) {
	printable.Fprintf(out, "no configuration is given: the chain is %s, and all state is in %s\n",
		strings.Join(cfg.Order, " → "), cfg.DataDir)
	found, _ := process.Scan(cfg.PluginDirs) // there need be no such directory
	for _, f := range found {
		if _, declared := cfg.Stages[f.Name]; !declared && f.Refused == nil {
			printable.Fprintf(out, `%s is no part of it; with a file of these lines, given with --config, it is the first stage:

  apiVersion: %s
  kind: %s
  stages: {%s: {delegate: %s}}

`, f.Path, config.APIVersion, config.Kind, f.Name, cfg.Order[0])
		}
	}
}

// inheritedService is what systemd has passed to this process. The socket of a program before this one takes the place of systemd's.
func inheritedService(inherited *handover.Inherited) (systemd.Service, error) {
	service, err := systemd.FromEnvironment()
	if err == nil && inherited.TakesOver() {
		service.Listener, err = inherited.Listen()
	}
	return service, err
}
