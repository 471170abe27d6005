package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"

	"github.com/catena-dev/catena/host/internal/config"
	"github.com/catena-dev/catena/host/internal/printable"
	"github.com/catena-dev/catena/host/internal/scaffold"
	"github.com/catena-dev/catena/host/internal/stagecheck"
	"github.com/catena-dev/catena/host/internal/store"
	"github.com/catena-dev/catena/sdk/klogr"
)

func stageCommand(version string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "stage",
		Short: "Write and check stages",
		Long:  "What authors of stages need. docs/tutorial.md goes from nothing to a running stage.",
	}
	cmd.AddCommand(stageNewCommand(version), stageCheckCommand(), stagePeerCommand())
	return cmd
}

// released is a version under which the SDK can be had.
var released = regexp.MustCompile(`^v[0-9]+\.[0-9]+\.[0-9]+(-(alpha|beta|rc)\.[0-9]+)?$`)

func stageNewCommand(version string) *cobra.Command {
	opts := scaffold.Options{Kind: scaffold.Middleware}
	if released.MatchString(version) {
		opts.SDK = version
	}
	var output string
	cmd := &cobra.Command{
		Use:   "new NAME",
		Short: "Write the repository of a new stage",
		Long: `Write a repository that builds and passes its test at once: a program, a test, a
Makefile, a README, a configuration of catena, and a CI file. A middleware serves some
paths and passes the rest on; an api is a Kubernetes-style API group with one kind, and
with --worker also what works on its objects.

The go command then finds out which modules it needs, the SDK among them. Where no
release of the SDK can be had, --sdk names a directory with a clone of Catena. If that
fails, nothing is left of the new directory.`,
		Example: `  catena stage new greeter
  catena stage new greeter --module github.com/me/greeter --sdk ~/src/catena
  catena stage new notes --kind api --worker`,
		Args: wantArgs(1, "the name of the stage"),
		RunE: func(cmd *cobra.Command, args []string) error {
			opts.Name = args[0]
			return runStageNew(cmd, opts, output)
		},
	}
	fs := cmd.Flags()
	fs.StringVar((*string)(&opts.Kind), "kind", string(opts.Kind), "`kind` of stage: "+strings.Join(scaffold.Kinds(), " or "))
	fs.BoolVar(&opts.Worker, "worker", false, "an api with a worker, which does in the background what its objects ask for")
	fs.StringVar(&opts.Module, "module", "", "`path` of the Go module (default example.com/NAME)")
	fs.StringVar(&opts.Dir, "dir", "", "`directory` to create (default ./NAME)")
	fs.StringVar(&opts.SDK, "sdk", opts.SDK, "`version` of the SDK, or directory of a clone of Catena (default: the latest release)")
	_ = cmd.RegisterFlagCompletionFunc("kind", cobra.FixedCompletions(scaffold.Kinds(), cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.MarkFlagDirname("dir")
	_ = cmd.MarkFlagDirname("sdk")
	registerOutput(cmd, &output, "text", "json")
	return cmd
}

// newStage is what "catena stage new" has made.
type newStage struct {
	Dir   string   `json:"dir"`
	Files []string `json:"files"`
}

func runStageNew(cmd *cobra.Command, opts scaffold.Options, output string) error {
	if err := checkOutput(output, "text", "json"); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	dir, files, err := scaffold.Create(ctx, opts)
	if err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	if output == "json" {
		return printJSON(out, newStage{dir, files})
	}
	printable.Fprintf(out, "created %s: %s\n", dir, strings.Join(files, ", "))
	printable.Fprintf(out, "next:\n  cd %s\n  make          # build and test\n  make run      # serve it\n", dir)
	return nil
}

func stageCheckCommand() *cobra.Command {
	opts := stagecheck.Options{Requests: 10000, Timeout: 30 * time.Second}
	var output, file string
	var env []string
	var withStore bool
	cmd := &cobra.Command{
		Use:         "check BINARY",
		Annotations: map[string]string{takesFiles: "BINARY"},
		Short:       "Check whether a stage keeps the protocol, whatever it is written in",
		Long: `Launch a stage as the host does, and check from outside what docs/protocol.md asks of
it, from the handshake to its end. Nothing else is needed: no configuration of the
host, no store, no other stage.

Requests go to the paths that the stage claims, or to those of --path; they are GET,
POST, OPTIONS and DELETE, so do not let a stage be checked that works on real data. What can
only be checked with the stage's help is checked on the endpoints that it serves below
--endpoints, see section 9 of docs/protocol.md, and skipped without them. The calls of
a middleware are checked on a path that it passes on, which --through names.

The exit code is 0 if no check has failed, 1 if one has, and 2 if the stage could not be checked.`,
		Example: `  catena stage check bin/catena-stage-hello --config hello.yaml --env REGION=eu
  catena stage check bin/catena-stage-hello --endpoints /hello/check -o junit > hello.xml`,
		Args: wantArgs(1, "the binary of a stage"),
		RunE: func(cmd *cobra.Command, args []string) error {
			opts.Binary = args[0]
			return withCode(cannotCheck, func() error {
				if err := checkOutput(output, "text", "json", "junit"); err != nil {
					return err
				}
				self, err := os.Executable()
				if err != nil {
					return err
				}
				opts.Peer = []string{self, "stage", "peer"}
				if opts.Env, err = stageEnv(env); err != nil {
					return err
				}
				if opts.Config, err = stageConfig(file); err != nil {
					return err
				}
				if withStore {
					closeStore, err := checkStore(cmd.Context(), &opts)
					if err != nil {
						return err
					}
					defer closeStore()
				}
				return runStageCheck(cmd, opts, output)
			})
		},
	}
	fs := cmd.Flags()
	fs.BoolVar(&withStore, "store", false, "give the stage an empty store and the flags of an API server that is alone")
	fs.StringVar(&file, "config", "", "`file` with the stage's own configuration, what config: holds in the host's: .yaml, .json or .toml")
	fs.StringArrayVar(&env, "env", nil, "`NAME=VALUE` that the stage finds in its environment, as with env: in the host's configuration (can be repeated)")
	fs.StringVar(&opts.Name, "name", "", "`name` that the stage must have (default: of the binary, catena-stage-NAME)")
	fs.StringSliceVar(&opts.Paths, "path", nil, "`path` to send requests to (default: the paths that the stage claims)")
	fs.StringVar(&opts.Endpoints, "endpoints", "", "`path` below which the stage serves check endpoints")
	fs.StringVar(&opts.Through, "through", "", "`path` below which the stage passes all requests on with calls, as a middleware does")
	fs.IntVar(&opts.Requests, "requests", opts.Requests, "`number` of requests over which memory must stay level")
	fs.DurationVar(&opts.Timeout, "timeout", opts.Timeout, "`time` that each step may take")
	fs.StringSliceVar(&opts.Only, "only", nil, "`names` of the checks to make (default: all)")
	fs.StringSliceVar(&opts.Skip, "skip", nil, "`names` of checks not to make, such as peers in a language that cannot ask for SO_PEERCRED")
	for _, flag := range []string{"only", "skip"} {
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(stagecheck.Names(), cobra.ShellCompDirectiveNoFileComp))
	}
	_ = cmd.MarkFlagFilename("config", "yaml", "yml", "json", "toml")
	registerOutput(cmd, &output, "text", "json", "junit")
	return cmd
}

// stageConfig reads a stage's own configuration as the host does, as JSON.
func stageConfig(file string) (json.RawMessage, error) {
	if file == "" {
		return nil, nil
	}
	values, err := config.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("--config: %w", err)
	}
	return json.Marshal(values)
}

// stageEnv reads variables, each NAME=VALUE.
func stageEnv(variables []string) (map[string]string, error) {
	env := map[string]string{}
	for _, text := range variables {
		name, value, ok := strings.Cut(text, "=")
		if !ok || name == "" {
			return nil, fmt.Errorf("--env %s: want NAME=VALUE", text)
		}
		env[name] = value
	}
	return env, nil
}

// stagePeerCommand is what "catena stage check" starts: another process that connects to the stage.
func stagePeerCommand() *cobra.Command {
	return &cobra.Command{
		Use: "peer SOCKET TIMEOUT", Hidden: true, Args: wantArgs(2, "a socket and a time"),
		RunE: func(_ *cobra.Command, args []string) error {
			timeout, err := time.ParseDuration(args[1])
			if err != nil {
				return err
			}
			return exitCode(stagecheck.Peer(args[0], timeout))
		},
	}
}

// cannotCheck is the exit code if a stage cannot be checked at all.
const cannotCheck = 2

// checkStore starts a store for the time of the check, and adds the flags with which an
// API server can be alone: everything is allowed, and what needs other stages is off.
func checkStore(ctx context.Context, opts *stagecheck.Options) (closeStore func(), err error) {
	dir, err := os.MkdirTemp("", "catena-")
	if err != nil {
		return nil, err
	}
	o := store.Options{Dir: dir, Socket: filepath.Join(dir, "s")}
	s, err := store.Open(ctx, o)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	opts.Flags = append(opts.Flags, "authorization-mode=AlwaysAllow",
		"disable-admission-plugins=NamespaceLifecycle,MutatingAdmissionPolicy,MutatingAdmissionWebhook,"+
			"ValidatingAdmissionPolicy,ValidatingAdmissionWebhook,ResourceQuota")
	for name, value := range o.Flags() {
		opts.Flags = append(opts.Flags, name+"="+value)
	}
	slices.Sort(opts.Flags)
	return func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		_ = s.Close(ctx)
		_ = os.RemoveAll(dir)
	}, nil
}

func runStageCheck(cmd *cobra.Command, opts stagecheck.Options, output string) error {
	// gRPC, which logs through klog here, has a lot to say about connections that end.
	if err := klogr.Install(hclog.NewNullLogger(), "", ""); err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	if output == "text" {
		opts.Progress = func(r stagecheck.Result) { printable.Fprintf(out, "%s", printable.Safe(printable.Text(r.String()))) }
	}
	report, err := stagecheck.Run(cmd.Context(), opts)
	if err != nil {
		return err
	}
	if err := writeStageReport(out, report, output); err != nil {
		return err
	}
	if report.Count(stagecheck.Failed) > 0 {
		return exitCode(1)
	}
	return nil
}

func writeStageReport(out io.Writer, report *stagecheck.Report, output string) error {
	switch output {
	case "json":
		return report.WriteJSON(out)
	case "junit":
		return report.WriteJUnit(out)
	}
	_, err := printable.Fprintf(out, "%s", printable.Safe(printable.Text(report.Summary())))
	return err
}
