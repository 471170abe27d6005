package cli

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/catena-dev/catena/host/internal/admin"
	"github.com/catena-dev/catena/host/internal/config"
	"github.com/catena-dev/catena/host/internal/datadir"
	"github.com/catena-dev/catena/host/internal/declared"
	"github.com/catena-dev/catena/host/internal/isolation"
	"github.com/catena-dev/catena/host/internal/printable"
	"github.com/catena-dev/catena/host/internal/store"
	"github.com/catena-dev/catena/host/internal/support"
)

func supportCommand(version string) *cobra.Command {
	var flags configFlags
	cmd := &cobra.Command{
		Use:   "support [FILE]",
		Short: "Collect what helps to find a fault into one archive",
		Long: `Write an archive (tar, gzip) with what is known of the host on the data directory: its state,
effective configuration, latest log lines, metrics, profiles of the host and of each stage's
process, what the kernel shows of the processes, versions and digests of the binaries, the
machine, names and sizes of the files of the data directory, and the state of etcd. README.txt in
it says what there is, what is missing and why. FILE is catena-support-HOST-TIME.tar.gz in the
working directory if it is not given.

Every part has a deadline of at most 20 seconds, so a host that hangs, or does not run, is no obstacle.
Keys, tokens, environments and values of the configuration that are secret are left out or replaced by ***.`,
		Example: `  catena support --data-dir /var/lib/catena
  catena support --config /etc/catena/catena.yaml fault.tar.gz`,
		Args: mayHaveArg("the name of a file"),
		RunE: func(cmd *cobra.Command, args []string) error {
			at := time.Now()
			name, path, err := archiveName(at, args)
			if err != nil {
				return err
			}
			c, err := newCollector(cmd.Context(), &flags, version)
			if err != nil {
				return err
			}
			results := support.Collect(cmd.Context(), c.parts(), support.NewSecrets(c.secrets...))
			size, err := support.Create(path, name, at, results)
			if err != nil {
				return err
			}
			return printSupport(cmd.OutOrStdout(), path, size, results)
		},
	}
	flags.register(cmd)
	return cmd
}

// archiveName returns the name of the directory in the archive, and the path of the file.
func archiveName(at time.Time, args []string) (name, path string, err error) {
	machine, err := os.Hostname()
	if err != nil {
		machine = "unknown"
	}
	name = "catena-support-" + machine + "-" + at.UTC().Format("20060102-150405")
	path = name + ".tar.gz"
	if len(args) > 0 {
		path = args[0]
	}
	if _, err := os.Lstat(path); err == nil {
		return "", "", fmt.Errorf("%s exists: name another file", path)
	}
	path, err = filepath.Abs(path) // the working directory may become that of the host
	return name, path, err
}

func printSupport(out io.Writer, path string, size int64, results []support.Result) error {
	for _, r := range results {
		line := fmt.Sprintf("%d bytes", len(r.Content))
		if r.Err != nil {
			line = r.Problem()
		}
		if _, err := printable.Fprintf(out, "%-40s %s\n", r.Name, line); err != nil {
			return err
		}
	}
	_, err := printable.Fprintf(out, "%s: %d bytes\n", path, size)
	return err
}

// hostTimeout is how long a host may take to respond before it counts as one that hangs.
const hostTimeout = 3 * time.Second

// collector knows where there is something to collect.
type collector struct {
	version string
	client  *admin.Client
	cfg     *config.Config
	// settings are the effective configuration without secrets, settingsErr is what is wrong with it.
	settings    []config.Setting
	settingsErr error
	secrets     []string
	// status is nil if the host has not responded.
	status    *admin.Status
	statusErr error
	// host is its process, or 0.
	host int
}

func newCollector(ctx context.Context, flags *configFlags, version string) (*collector, error) {
	client, err := flags.client()
	if err != nil {
		return nil, err
	}
	c := &collector{version: version, client: client}
	if dir, err := filepath.Abs(client.DataDir); err == nil {
		client.DataDir = dir
	}
	c.readStatus(ctx)
	c.readConfig(ctx, flags)
	return c, nil
}

func (c *collector) readStatus(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, hostTimeout)
	defer cancel()
	status, err := c.client.Status(ctx)
	if err != nil {
		c.statusErr = err
	} else {
		c.status = &status
	}
	c.host = store.Holder(c.client.DataDir)
	if errors.Is(c.statusErr, context.DeadlineExceeded) {
		c.statusErr = fmt.Errorf("the host, process %d, has not responded within %s", c.host, hostTimeout)
	}
}

// readConfig reads the configuration of the host, or that of the flags if it does not say.
func (c *collector) readConfig(ctx context.Context, flags *configFlags) {
	ctx, cancel := context.WithTimeout(ctx, hostTimeout)
	defer cancel()
	options := flags.options()
	switch {
	case len(flags.configFiles()) > 0:
	case c.status != nil:
		uid, err := flags.adoptFrom(ctx, c.client)
		if err == nil {
			err = mayAct(uid)
		}
		if c.settingsErr = err; err != nil {
			return
		}
		options = flags.options()
	case len(options.Files) == 0:
		c.settingsErr = errors.New("the host has not said what it is read from: name it with --config")
		return
	}
	c.cfg, c.settingsErr = config.Inspect(options)
	if c.cfg == nil {
		return
	}
	c.settings = c.cfg.Effective()
	plain := slices.Clone(c.settings)
	ctx, cancelMask := context.WithTimeout(context.WithoutCancel(ctx), askTimeout)
	defer cancelMask()
	maskSecrets(ctx, c.cfg, c.settings, io.Discard)
	for i, s := range c.settings {
		if s.Value == mask {
			c.secrets = append(c.secrets, texts(plain[i].Value)...)
		}
	}
	for _, file := range c.cfg.APIServer["token-auth-file"] {
		c.secrets = append(c.secrets, tokensIn(file)...)
	}
}

// texts returns the texts in a value.
func texts(value any) (all []string) {
	switch v := value.(type) {
	case []any:
		for _, e := range v {
			all = append(all, texts(e)...)
		}
	case map[string]any:
		for _, e := range v {
			all = append(all, texts(e)...)
		}
	case string:
		all = append(all, v)
	default:
		all = append(all, fmt.Sprint(v))
	}
	return all
}

// tokensIn returns the tokens of a file with static ones.
func tokensIn(file string) []string {
	f, err := os.Open(file)
	if err != nil {
		return nil
	}
	defer f.Close()
	var tokens []string
	lines := csv.NewReader(f)
	lines.FieldsPerRecord = -1
	for {
		line, err := lines.Read()
		if err != nil {
			return tokens
		}
		tokens = append(tokens, line[0])
	}
}

func (c *collector) parts() []support.Part {
	parts := []support.Part{
		{Name: "status.txt", About: "catena status", Write: c.writeStatus("text")},
		{Name: "status.json", About: "catena status -o json", Write: c.writeStatus("json")},
		{Name: "configuration.txt", About: "catena config show: the effective configuration", Write: c.writeSettings},
		{Name: "log.txt", About: "the latest log lines of the host and its stages", Write: c.writeLog},
		{Name: "log-levels.txt", About: "catena logs level", Write: c.writeLevels},
		{Name: "metrics.txt", About: "/metrics", Write: c.client.Metrics},
		{Name: "versions.txt", About: "versions of this program and its modules", Write: c.writeVersions},
		{Name: "binaries.txt", About: "SHA-256 of the binaries", Timeout: 20 * time.Second, Write: support.Digests(c.binaries())},
		{Name: "machine.txt", About: "kernel, limits, memory, load", Write: support.Kernel},
		{Name: "isolation.txt", About: "what this machine has to isolate stages", Write: writeIsolation},
		{Name: "files.txt", About: "names and sizes of the files of the data directory, and free space",
			Write: support.Files(c.client.DataDir)},
		{Name: "etcd.txt", About: "state of etcd", Write: c.writeEtcd},
	}
	if c.host != 0 { // also if it has not responded: that may be the fault
		parts = append(parts, c.profiles("profiles/host", "", "")...)
	}
	for _, p := range c.processes() {
		parts = append(parts, support.Part{
			Name: fmt.Sprintf("processes/%s-%d.txt", p.name, p.pid), About: "what the kernel shows of the process",
			Write: support.Process(p.pid),
		})
		if p.generation != "" {
			parts = append(parts, c.profiles("profiles/"+p.name+"-"+p.generation, p.name, p.generation)...)
		}
	}
	if journalctl, err := exec.LookPath("journalctl"); err == nil {
		parts = append(parts, support.Part{Name: "journal.txt", About: "journalctl -u catena",
			Write: func(ctx context.Context, w io.Writer) error {
				cmd := exec.CommandContext(ctx, journalctl, "-u", "catena", "-n", "10000", "--no-pager", "-o", "short-iso-precise")
				cmd.Stdout, cmd.Stderr = w, w
				return cmd.Run()
			}})
	}
	return parts
}

// profiles are those of a process; of the host if stage is empty.
func (c *collector) profiles(prefix, stage, generation string) []support.Part {
	part := func(file, about, profile string, query url.Values) support.Part {
		return support.Part{Name: prefix + "-" + file, About: about, Binary: query == nil,
			Write: func(ctx context.Context, w io.Writer) error {
				if query == nil {
					query = url.Values{}
				}
				return c.client.DebugPage(ctx, w, stage, generation, "pprof/"+profile, query)
			}}
	}
	return []support.Part{
		part("goroutines.txt", "stacks of all goroutines", "goroutine", url.Values{"debug": {"2"}}),
		part("heap.pb.gz", "heap, for go tool pprof", "heap", nil),
	}
}

// serverProcess is one of the host, or of what it has started.
type serverProcess struct {
	name, generation string
	pid              int
}

// processes are those that the host knows or, if it does not respond, the ones below it.
func (c *collector) processes() []serverProcess {
	var all []serverProcess
	if c.host != 0 {
		all = append(all, serverProcess{name: "host", pid: c.host})
	}
	if c.status == nil {
		for _, pid := range support.Children(c.host) {
			all = append(all, serverProcess{name: "child", pid: pid})
		}
		return all
	}
	for _, st := range c.status.Stages {
		if admin.HasProcess(st) {
			all = append(all, serverProcess{st.Stage, st.Generation, st.PID})
		}
		others := st.Others
		if st.Standby != nil {
			others = append(slices.Clone(others), *st.Standby)
		}
		for _, g := range others {
			all = append(all, serverProcess{st.Stage, g.Generation, g.PID})
		}
	}
	return all
}

func (c *collector) writeStatus(format string) func(context.Context, io.Writer) error {
	return func(_ context.Context, w io.Writer) error {
		if c.status == nil {
			return c.statusErr
		}
		return printStatus(w, format, *c.status, true)
	}
}

func (c *collector) writeSettings(_ context.Context, w io.Writer) error {
	if c.settings == nil {
		return c.settingsErr
	}
	return errors.Join(printSettings(w, "text", c.settings), c.settingsErr)
}

func (c *collector) writeLog(ctx context.Context, w io.Writer) error {
	return printLogs(ctx, c.client, admin.LogRequest{Tail: -1}, w, w)
}

func (c *collector) writeLevels(ctx context.Context, w io.Writer) error {
	all, err := c.client.LogLevels(ctx)
	if err != nil {
		return err
	}
	return printLogLevels(w, "text", all)
}

func (c *collector) writeVersions(_ context.Context, w io.Writer) error {
	if _, err := io.WriteString(w, versionsOf(c.version).String()); err != nil {
		return err
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return errors.New("this program was built without modules")
	}
	_, err := printable.Fprintf(w, "\n%s", printable.Safe(printable.Text(info.String())))
	return err
}

// binaries are this program and those of the stages.
func (c *collector) binaries() []string {
	var files []string
	add := func(file string) {
		if file != "" && !slices.Contains(files, file) {
			files = append(files, file)
		}
	}
	if own, err := os.Executable(); err == nil {
		add(own)
	}
	if c.status != nil {
		for _, st := range c.status.Stages {
			add(st.Binary)
		}
	}
	if c.cfg != nil {
		for _, name := range c.cfg.Order {
			if b, err := declared.FindBinary(c.cfg, name); err == nil {
				add(b.Path)
			}
		}
	}
	return files
}

func writeIsolation(ctx context.Context, w io.Writer) error {
	m := isolation.Detect(ctx)
	answer := func(missing error) string {
		if missing != nil {
			return strings.ReplaceAll(missing.Error(), "\n", "; ")
		}
		return "yes"
	}
	_, err := printable.Fprintf(w, "users of their own: %t\nnamespaces: %s\nseccomp: %s\nLandlock ABI: %d\n", m.Root,
		answer(m.Namespaces), answer(m.Filter), m.Landlock)
	return err
}

// writeEtcd asks etcd itself, which may respond where the host does not.
func (c *collector) writeEtcd(ctx context.Context, w io.Writer) error {
	if c.cfg == nil {
		return errors.New("the configuration is not known")
	}
	dirs, err := datadir.Runtime(c.client.RuntimeDir, c.client.DataDir)
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		options := declared.StoreOptions(c.cfg, c.client.DataDir, dir)
		if _, err = os.Stat(options.Socket); err == nil || len(options.Endpoints) > 0 {
			return store.WriteStatus(ctx, options, w)
		}
	}
	return fmt.Errorf("the embedded etcd does not run: %w", err)
}
