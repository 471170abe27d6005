package front

import (
	"context"
	"strconv"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/pflag"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/cli/globalflag"
	basecompatibility "k8s.io/component-base/compatibility"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register" // --logging-format=json and its flags
	"k8s.io/component-base/version/verflag"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"

	"github.com/catena-dev/catena/sdk/klogr"
)

// CommandLine has the flags of kube-apiserver's command line, and records what is given for them.
type CommandLine struct {
	// Sets are the flags, in the groups of kube-apiserver's help.
	Sets cliflag.NamedFlagSets

	options *options.ServerRunOptions
	given   map[string][]string
}

// NewCommandLine returns the flags of kube-apiserver, and those of every program of Kubernetes.
// The flags that libraries register have to be in pflag.CommandLine.
func NewCommandLine(program string) *CommandLine {
	addLoggingGates()
	c := &CommandLine{options: options.NewServerRunOptions(), given: map[string][]string{}}
	c.Sets = c.options.Flags()
	for _, set := range c.Sets.FlagSets {
		set.VisitAll(func(f *pflag.Flag) { f.Value = &recorder{Value: f.Value, line: c, flag: f.Name} })
	}
	global := c.Sets.FlagSet("global")
	verflag.AddFlags(global)
	globalflag.AddGlobalFlags(global, program, logs.SkipLoggingConfigurationFlags())
	return c
}

// StopRecording puts the flags' own values back, by whose types help finds out whether a default is worth printing.
func (c *CommandLine) StopRecording() {
	for _, set := range c.Sets.FlagSets {
		set.VisitAll(func(f *pflag.Flag) {
			if r, ok := f.Value.(*recorder); ok {
				f.Value = r.Value
			}
		})
	}
}

// recorder is the value of a flag, which keeps what it is set to.
type recorder struct {
	pflag.Value
	line *CommandLine
	flag string
}

// Set implements pflag.Value.
func (r *recorder) Set(value string) error {
	if err := r.Value.Set(value); err != nil {
		return err
	}
	values := r.line.given[r.flag]
	if takesOne(r.Type()) {
		values = nil
	}
	r.line.given[r.flag] = append(values, value)
	return nil
}

// Given returns the flags that are given, by name without dashes, each with one value for each of its uses that
// counts.
func (c *CommandLine) Given() map[string][]string { return c.given }

// CertDir returns the directory of the certificates that are made if none are given.
func (c *CommandLine) CertDir() string { return c.options.SecureServing.ServerCert.CertDirectory }

// PrintVersion prints the version and ends the process, if the command line asks for that.
func (c *CommandLine) PrintVersion() { verflag.PrintAndExitIfRequested() }

// LogTo makes Kubernetes' code log to log, at the verbosity of the flags, until a server has a log of its own.
func (c *CommandLine) LogTo(log hclog.Logger) error {
	return klogr.Install(log, strconv.FormatUint(uint64(c.options.Logs.Verbosity), 10),
		logsapi.VModuleConfigurationPflag(&c.options.Logs.VModule).String())
}

// EmbedsEtcd reports whether no etcd is given.
func (c *CommandLine) EmbedsEtcd() bool { return len(c.given["etcd-servers"]) == 0 }

// Validate returns the error with which kube-apiserver refuses the flags. Like that, it makes the certificate with
// which the server serves, without one.
func (c *CommandLine) Validate(ctx context.Context) error {
	generic := c.options.GenericServerRunOptions
	if err := generic.ComponentGlobalsRegistry.Set(); err != nil {
		return err
	}
	gate := generic.ComponentGlobalsRegistry.FeatureGateFor(basecompatibility.DefaultKubeComponent)
	if err := logsapi.Validate(c.options.Logs, gate, nil).ToAggregate(); err != nil {
		return err
	}
	if transport := &c.options.Etcd.StorageConfig.Transport; len(transport.ServerList) == 0 {
		transport.ServerList = []string{"unix:///embedded"}
	}
	completed, err := c.options.Complete(ctx)
	if err != nil {
		return err
	}
	return utilerrors.NewAggregate(completed.Validate())
}
