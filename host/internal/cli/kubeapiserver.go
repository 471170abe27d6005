package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	componentcli "k8s.io/component-base/cli"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/term"

	"github.com/catena-dev/catena/host/internal/admin"
	"github.com/catena-dev/catena/host/internal/config"
	"github.com/catena-dev/catena/host/internal/front"
	"github.com/catena-dev/catena/host/internal/handover"
	"github.com/catena-dev/catena/host/internal/isolation"
	"github.com/catena-dev/catena/host/internal/server"
)

// kubeAPIServerName is the name under which the program has the command line of kube-apiserver.
const kubeAPIServerName = "kube-apiserver"

// apiserverCommand is the command line of kube-apiserver below that of catena. The flags are those
// that libraries of Kubernetes register for every program that has them.
func apiserverCommand(version string, libraries *pflag.FlagSet) *cobra.Command {
	return &cobra.Command{
		Use:   "apiserver [kube-apiserver flags]",
		Short: "Run the server with the command line of kube-apiserver",
		Long: `Run the chain aggregator, core, extensions with the flags of kube-apiserver, their meaning
and their defaults. The same program under the name kube-apiserver does that too.`,
		Example: `  catena apiserver --help
  ln -s catena kube-apiserver && ./kube-apiserver --etcd-servers=http://127.0.0.1:2379 ...`,
		DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if code := runKubeAPIServer(cmd.Context(), "catena apiserver", version, args, libraries); code != 0 {
				return exitCode(code)
			}
			return nil
		},
	}
}

// runKubeAPIServer runs the command line of kube-apiserver, and returns its exit code.
func runKubeAPIServer(ctx context.Context, name, version string, args []string, libraries *pflag.FlagSet) int {
	own := pflag.CommandLine
	pflag.CommandLine = libraries
	line := front.NewCommandLine(name)
	pflag.CommandLine = own // or cobra would add all of them
	k := &kubeAPIServer{line: line, version: version}
	cmd := k.command(name)
	cmd.SetArgs(args)
	cmd.SetContext(ctx)
	return componentcli.Run(cmd)
}

// kubeAPIServer is a server that is started as kube-apiserver is.
type kubeAPIServer struct {
	line    *front.CommandLine
	version string
	files   []string
	dataDir string
}

func (k *kubeAPIServer) command(name string) *cobra.Command {
	cmd := &cobra.Command{
		Use: name,
		Long: `The Kubernetes API server as a chain of processes: a host, which terminates TLS, authenticates,
authorizes and audits each request, and one process for each of aggregator, core and extensions.
It has the flags of kube-apiserver; those of Catena are below "Catena flags".`,
		SilenceUsage: true,
		Args: func(cmd *cobra.Command, args []string) error {
			for _, arg := range args {
				if arg != "" {
					return fmt.Errorf("%q does not take any arguments, got %q", cmd.CommandPath(), args)
				}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return k.run(cmd.Context()) },
	}
	own := k.line.Sets.FlagSet("Catena")
	own.StringSliceVar(&k.files, "catena-config", nil,
		"Configuration file of Catena, for more stages and for what kube-apiserver does not have; more than one may be given.")
	own.StringVar(&k.dataDir, "catena-data-dir", "",
		"Directory of what Catena itself keeps: sockets and, without --etcd-servers, etcd. If not set, it is catena below --cert-dir; "+
			"with --etcd-servers, where that cannot be written or another server uses it, a directory for temporary files.")
	for _, set := range k.line.Sets.FlagSets {
		cmd.Flags().AddFlagSet(set)
	}
	columns, _, _ := term.TerminalSize(cmd.OutOrStdout())
	cliflag.SetUsageAndHelpFunc(cmd, k.line.Sets, columns)
	help := cmd.HelpFunc()
	cmd.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		k.line.StopRecording()
		help(cmd, args)
	})
	return cmd
}

// run runs the server until it is told to end.
func (k *kubeAPIServer) run(ctx context.Context) error {
	k.line.PrintVersion()
	// The flags are checked before the server has a log, and why it has ended is logged after that.
	log := server.NewLogger(config.Log{Format: k.logFormat(), Level: "info"})
	if err := k.line.LogTo(log); err != nil {
		return err
	}
	if err := k.line.Validate(ctx); err != nil {
		return err
	}
	if handover.FromContext(ctx).OnlyCheck {
		return nil
	}
	data, err := k.openDataDir(log)
	if err != nil {
		return orHandOver(ctx, err)
	}
	return orHandOver(ctx, errors.Join(k.serve(ctx, data), data.close(), k.line.LogTo(log)))
}

// serve runs the server on its data directory.
func (k *kubeAPIServer) serve(ctx context.Context, data *dataDir) error {
	reload, stopReload := hangups() // before the configuration is read
	defer stopReload()
	options := k.options(data.path)
	load := func() (*config.Config, error) { return config.Load(options) }
	cfg, err := load()
	if err != nil {
		return err
	}
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	inherited := handover.FromContext(ctx)
	service, err := inheritedService(inherited)
	if err != nil {
		return err
	}
	if err := isolation.HideMemory(); err != nil {
		return err
	}
	ctx, force, stop := shutdownContext(ctx)
	defer stop()
	return server.Run(ctx, server.Options{
		Config: cfg, Source: admin.Source{Dir: dir, Files: options.Files, Env: catenaVariables(options.Env), Flags: options.Flags},
		Load: load, DataDir: data.lock, Out: io.Discard, Reload: reload, Force: force, Systemd: service,
		Handover: inherited, Version: k.version,
	})
}

// options are the layers of the configuration that the command line stands for.
func (k *kubeAPIServer) options(dataDir string) config.Options {
	flags := []config.CommandFlag{
		{Name: kubeAPIServerName, Key: "apiserverDefaults", Value: config.KubernetesDefaults},
		{Name: "--catena-data-dir", Key: "dataDir", Value: dataDir},
	}
	given := k.line.Given()
	for _, name := range slices.Sorted(maps.Keys(given)) {
		flags = append(flags, commandFlag(name, given[name]))
	}
	if len(given["logging-format"]) > 0 {
		flags = append(flags, config.CommandFlag{Name: "--logging-format", Key: "log.format", Value: k.logFormat()})
	}
	return config.Options{Files: k.files, Env: os.Environ(), Flags: flags}
}

// logFormat returns the value of log.format for --logging-format, which has not been checked.
func (k *kubeAPIServer) logFormat() string {
	if slices.Equal(k.line.Given()["logging-format"], []string{"json"}) {
		return config.KlogJSONLog
	}
	return config.KlogLog
}

// commandFlag is a flag of kube-apiserver with its values.
func commandFlag(name string, values []string) config.CommandFlag {
	f := config.CommandFlag{Name: "--" + name, Key: config.FlagKey(name), Value: strings.Join(values, ",")}
	if strings.HasPrefix(f.Key, "apiserver.") {
		list, _ := json.Marshal(values) // strings can always be encoded
		f.Value = string(list)
	}
	return f
}
