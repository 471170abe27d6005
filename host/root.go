package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/catena-dev/catena/host/internal/config"
)

func rootCommand(out io.Writer) *cobra.Command {
	root := &cobra.Command{
		Use:   "catena",
		Short: "An API server that is a chain of plugin processes",
		Long: `Catena is an API server built as a chain of processes. A small host terminates
TLS, authenticates, authorizes and audits each request once, and relays it to the
stage that owns its path. Every stage is a plugin binary, catena-stage-NAME, in a
plugin folder; the configuration says which stage delegates to which.

A first session:

  catena serve --config configs/catena.yaml
  export KUBECONFIG=$PWD/data/admin.kubeconfig
  kubectl get namespaces`,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetOut(out)
	root.AddCommand(serveCommand(), statusCommand(), swapCommand(), reloadCommand(), chainCommand(), explainCommand(), devCommand(), configCommand(), pluginsCommand(),
		kubeconfigCommand(), stageCommand(), versionCommand())
	return root
}

// configFlags are the flags of every command that reads a configuration.
type configFlags struct {
	files   []string
	set     []string
	dataDir string
	// more are a command's own flags that stand for a key.
	more []config.CommandFlag
}

func (f *configFlags) register(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringSliceVar(&f.files, "config", nil,
		"configuration `file` (YAML, JSON or TOML); more than one may be given, later ones win")
	fs.StringArrayVar(&f.set, "set", nil,
		"one `key=value` of the configuration, such as apiserver.secure-port=7443; wins over files and environment")
	fs.StringVar(&f.dataDir, "data-dir", "", "`folder` for all state (dataDir of the configuration)")
	_ = cmd.MarkFlagFilename("config", "yaml", "yml", "json", "toml")
	_ = cmd.MarkFlagDirname("data-dir")
}

// options are all layers of the configuration by now.
func (f *configFlags) options() config.Options {
	flags := slices.Clone(f.more)
	if f.dataDir != "" {
		flags = append(flags, config.CommandFlag{Name: "--data-dir", Key: "dataDir", Value: f.dataDir})
	}
	return config.Options{Files: f.files, Set: f.set, Flags: flags, Env: os.Environ()}
}

func (f *configFlags) load() (*config.Config, error) { return config.Load(f.options()) }

// inspect also returns what is right of a configuration that is wrong.
func (f *configFlags) inspect() (*config.Config, error) { return config.Inspect(f.options()) }

// loadForFolders is load for commands that need no more of a configuration than
// where its folders are, and so do without one if no file is given.
func (f *configFlags) loadForFolders() (*config.Config, error) {
	if len(f.files) > 0 || len(f.set) > 0 {
		return f.load()
	}
	dataDir := f.dataDir
	if dataDir == "" {
		dataDir = os.Getenv("CATENA_DATA_DIR")
	}
	if dataDir == "" {
		dataDir = "./data"
	}
	return &config.Config{DataDir: dataDir, RuntimeDir: os.Getenv("CATENA_RUNTIME_DIR")}, nil
}

// registerOutput adds the flag --output with its values, for people and for shells.
func registerOutput(cmd *cobra.Command, output *string, formats ...string) {
	last := len(formats) - 1
	usage := fmt.Sprintf("output format: %s or %s", strings.Join(formats[:last], ", "), formats[last])
	cmd.Flags().StringVarP(output, "output", "o", formats[0], usage)
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
}

// checkOutput refuses an output format that the command does not have.
func checkOutput(format string, formats ...string) error {
	for _, f := range formats {
		if f == format {
			return nil
		}
	}
	return fmt.Errorf("--output %q: this command prints %s", format, strings.Join(formats, ", "))
}
