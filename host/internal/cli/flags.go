package cli

import (
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/catena-dev/catena/host/internal/admin"
	"github.com/catena-dev/catena/host/internal/config"
)

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

// loadDirs is load for commands that need no more of a configuration than its
// directories, and so do without one if no file is given.
func (f *configFlags) loadDirs() (*config.Config, error) {
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

// client returns a client of the host that runs on the data directory.
func (f *configFlags) client() (*admin.Client, error) {
	cfg, err := f.loadDirs()
	if err != nil {
		return nil, err
	}
	return &admin.Client{DataDir: cfg.DataDir, RuntimeDir: cfg.RuntimeDir}, nil
}
