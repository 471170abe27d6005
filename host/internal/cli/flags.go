package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/catena-dev/catena/host/internal/admin"
	"github.com/catena-dev/catena/host/internal/config"
	"github.com/catena-dev/catena/host/internal/printable"
)

// configFlags are the flags that give a configuration.
type configFlags struct {
	files   []string
	set     []string
	dataDir string
	// more are a command's own flags that stand for a key.
	more []config.CommandFlag
	// findsHost means that the command takes no more of a configuration than where its
	// host is.
	findsHost bool
	// host is the configuration of the running host, if the command has adopted it.
	host *admin.Source
}

// register is for the commands that read a configuration.
func (f *configFlags) register(cmd *cobra.Command) {
	f.add(cmd, "configuration `file` (YAML, JSON or TOML); more than one may be given, later ones win (default $CATENA_CONFIG or, where there is no data directory, "+installed+" if it is there)",
		"one `key=value` of the configuration, such as apiserver.secure-port=7443; wins over files and environment")
}

// registerHost is for the commands that only look for a running host or its directories.
func (f *configFlags) registerHost(cmd *cobra.Command) {
	f.findsHost = true
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error { return f.useless(cmd) }
	f.add(cmd, "configuration `file` of the host, if its dataDir or runtimeDir is needed to find it (default $CATENA_CONFIG or, where there is no data directory, "+installed+")",
		"dataDir or runtimeDir of the host, as `key=value`")
}

func (f *configFlags) add(cmd *cobra.Command, file, set string) {
	fs := cmd.Flags()
	fs.StringSliceVar(&f.files, "config", nil, file)
	fs.StringArrayVar(&f.set, "set", nil, set)
	fs.StringVar(&f.dataDir, "data-dir", "", "`directory` of all state (dataDir of the configuration)")
	_ = cmd.MarkFlagFilename("config", "yaml", "yml", "json", "toml")
	_ = cmd.MarkFlagDirname("data-dir")
	_ = cmd.RegisterFlagCompletionFunc("set", f.completeSet)
}

// configVariable has the files of the configuration if no flag does.
const configVariable = "CATENA_CONFIG"

// configFiles returns the files of --config or, without these, of the environment.
func (f *configFlags) configFiles() []string {
	if len(f.files) > 0 {
		return f.files
	}
	separates := func(r rune) bool { return r == ',' || r == os.PathListSeparator }
	return strings.FieldsFunc(os.Getenv(configVariable), separates)
}

// installed is the configuration that comes with the packages.
const installed = "/etc/catena/catena.yaml"

// options are all layers of the configuration by now.
func (f *configFlags) options() config.Options { return f.optionsBeside(installed) }

// optionsBeside are the options where the packages' configuration is at a path. It is the file if nothing says of which host the
// configuration is, and the working directory has no data directory.
func (f *configFlags) optionsBeside(service string) config.Options {
	if f.host != nil {
		set := slices.DeleteFunc(slices.Clone(f.set), func(kv string) bool { return isDirectory(keyOf(kv)) })
		return config.Options{Files: f.host.Files, Env: f.host.Env, Set: append(slices.Clone(f.host.Set), set...), Flags: f.host.Flags}
	}
	flags := slices.Clone(f.more)
	if f.dataDir != "" {
		flags = append(flags, config.CommandFlag{Name: "--data-dir", Key: "dataDir", Value: f.dataDir})
	}
	o := config.Options{Files: f.configFiles(), Set: f.set, Flags: flags, Env: os.Environ()}
	if f.given() || f.dataDir != "" || os.Getenv("CATENA_DATA_DIR") != "" ||
		slices.ContainsFunc(f.set, func(kv string) bool { return isDirectory(keyOf(kv)) }) {
		return o
	}
	if _, err := os.Stat("data"); !errors.Is(err, fs.ErrNotExist) {
		return o
	}
	if _, err := os.Stat(service); err == nil {
		o.Files = []string{service}
	}
	return o
}

// settle makes the packages' configuration, if it is the file, that of the environment: the host reads it again, and so
// does a program that takes its place, whatever is in the working directory by then.
func (f *configFlags) settle(service string) error {
	if files := f.optionsBeside(service).Files; len(f.configFiles()) == 0 && len(files) > 0 {
		return os.Setenv(configVariable, files[0])
	}
	return nil
}

// given reports whether the flags and the environment give a configuration.
func (f *configFlags) given() bool {
	return len(f.configFiles()) > 0 || slices.ContainsFunc(f.set, func(kv string) bool { return strings.HasPrefix(kv, "stages.") })
}

// source are the options for those who ask the host for its configuration.
func (f *configFlags) source() (admin.Source, error) {
	dir, err := os.Getwd()
	if err != nil {
		return admin.Source{}, err
	}
	o := f.options()
	return admin.Source{Dir: dir, Files: o.Files, Env: catenaVariables(o.Env), Set: o.Set, Flags: o.Flags}, nil
}

// catenaVariables returns what the configuration may take from an environment.
func catenaVariables(env []string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(kv string) bool { return !strings.HasPrefix(kv, "CATENA_") })
}

func (f *configFlags) load() (*config.Config, error) { return config.Load(f.options()) }

// inspect also returns what is right of a configuration that is wrong.
func (f *configFlags) inspect() (*config.Config, error) { return config.Inspect(f.options()) }

// adopt makes the configuration that of the host that runs on the data directory, if the flags and the environment give
// none; without such a host, it is that of the packages, or else the defaults. The process changes to the working
// directory of the host, to which the paths are relative. What a host of another user says is an error, unless that is
// root: the configuration names programs that the command executes, and files that it reads.
func (f *configFlags) adopt(ctx context.Context) error {
	if f.given() {
		return nil
	}
	client, err := f.client()
	if err != nil {
		return err
	}
	uid, err := f.adoptFrom(ctx, client)
	if admin.IsNotRunning(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the configuration of the host that runs on the data directory %s, as there is neither --config nor %s: %w",
			client.DataDir, configVariable, err)
	}
	return mayAct(uid)
}

// mayAct returns an error if this user must not execute or read what a host of that user names.
func mayAct(uid int) error {
	if uid == 0 || uid == os.Geteuid() {
		return nil
	}
	return fmt.Errorf("the host runs as user %d, whose configuration must not decide what this user (%d) executes and reads: "+
		"run the command as that user (sudo -u '#%[1]d'), or name a configuration with --config", uid, os.Geteuid())
}

// adoptFrom makes the configuration that of a running host, as adopt does, and returns the user of the host.
func (f *configFlags) adoptFrom(ctx context.Context, client *admin.Client) (uid int, err error) {
	source, uid, err := client.Source(ctx)
	if err != nil {
		return 0, err
	}
	if wd, err := os.Getwd(); err != nil || wd != source.Dir {
		if err := os.Chdir(source.Dir); err != nil {
			return 0, fmt.Errorf("working directory of the running host: %w", err)
		}
	}
	f.host = &source
	return uid, nil
}

// isDirectory reports whether a key says where a host is.
func isDirectory(key string) bool { return key == "dataDir" || key == "runtimeDir" }

// takes reports whether --set has a use for a key.
func (f *configFlags) takes(key string) bool { return !f.findsHost || isDirectory(key) }

func keyOf(kv string) string {
	key, _, _ := strings.Cut(kv, "=")
	return key
}

// useless returns an error if --set has a key that does not help to find the host.
func (f *configFlags) useless(cmd *cobra.Command) error {
	for _, kv := range f.set {
		if key := keyOf(kv); !isDirectory(key) {
			return fmt.Errorf("--set %s: has no effect: the running host has a configuration of its own, and %s only looks for the host "+
				"(by --data-dir, --config, or --set of dataDir or runtimeDir); to change a key, change the host's configuration, then catena reload",
				key, called(cmd))
		}
	}
	return nil
}

// dirs returns a configuration of which only the directories are sure to be right.
func (f *configFlags) dirs() (*config.Config, error) {
	cfg, err := f.inspect()
	if cfg == nil || cfg.Hides("dataDir") || cfg.Hides("runtimeDir") {
		return nil, cmp.Or(err, errors.New("the configuration has no dataDir"))
	}
	return cfg, nil
}

// client returns a client of the host that runs on the data directory.
func (f *configFlags) client() (*admin.Client, error) {
	cfg, err := f.dirs()
	if err != nil {
		return nil, err
	}
	client := &admin.Client{DataDir: cfg.DataDir, RuntimeDir: cfg.RuntimeDir}
	if isTerminal(os.Stderr) {
		client.Waiting = func(since time.Duration) {
			printable.Fprintf(os.Stderr, "still waiting for the host, which is alive (%s)\n", since.Round(time.Second))
		}
	}
	return client, nil
}
