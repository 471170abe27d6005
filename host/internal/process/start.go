package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"github.com/hashicorp/go-plugin/runner"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/catena-dev/catena/host/internal/bounds"
	"github.com/catena-dev/catena/host/internal/cgroup"
	"github.com/catena-dev/catena/host/internal/decode"
	"github.com/catena-dev/catena/host/internal/isolation"
	"github.com/catena-dev/catena/host/internal/printable"
	"github.com/catena-dev/catena/sdk/stagev1"
)

const (
	defaultStartTimeout = time.Minute
	// exitGrace is how long a start that has failed waits for the process to end by
	// itself, to report how it did.
	exitGrace = time.Second
)

// Spec is what to start.
type Spec struct {
	// Stage is the name in the chain. It is part of every error and log line.
	Stage string
	// Name is the name that the binary must report; Stage if empty.
	Name string
	// Attach, if not empty, is the directory of the sockets of a process that was started
	// by hand: Connect attaches to that and starts nothing. Of the fields below, only
	// AttachWait, StartTimeout and Logger are used then.
	Attach string
	// AttachWait is how long to wait for such a process; StartTimeout if 0.
	AttachWait time.Duration
	// Binary is the path of what to start. It is checked as by Check.
	Binary string
	// SHA256, if not empty, is the digest that the binary must have, in hexadecimal.
	// The file whose digest is compared is the one that is started.
	SHA256 string
	// Approve, if not nil, is called with the contents of what is about to be started. An error
	// is the one that Start returns; nothing has been executed then.
	Approve func(Contents) error
	// Listener is the data socket that the process inherits. It stays the caller's.
	Listener *Listener
	// RuntimeDir is the directory for the socket of the control plane. It
	// has to exist and to keep other users out.
	RuntimeDir string
	// Env is added to the environment.
	Env map[string]string
	// ID distinguishes the process from others of the stage that run at the same time.
	ID string
	// OpenFiles is how many files the process may have open; 0 is as many as the host.
	OpenFiles uint64
	// Limits are those of the process and of all that it starts. They need Cgroups: of what cannot
	// be had there, the processors and the number of processes are logged, or an error if the
	// isolation is required; memory is not, because the caller can measure it.
	Limits cgroup.Limits
	// Cgroups has the group in which a process that is isolated or limited starts, and by
	// which all that it has started ends with it. It may be nil.
	Cgroups *cgroup.Tree
	// Trusted reports whether the stage is as powerful as the server.
	Trusted bool
	// HostEnv is the environment from which the process inherits what the package's
	// documentation lists; os.Environ if nil.
	HostEnv []string
	// StartTimeout bounds the time until the process has described itself; a minute if 0.
	StartTimeout time.Duration
	// Isolation is what keeps the process from what it was not granted; nothing if zero. The
	// name of the stage, the binary and the directory of the process are filled in.
	Isolation isolation.Process
	// Machine is what this machine can do for that. The program of this process has to call
	// isolation.Dispatch first.
	Machine *isolation.Machine
	// Logger gets the log and the output of the process. It should have the stage's name.
	Logger hclog.Logger
}

func (s Spec) withDefaults() Spec {
	if dir, err := filepath.Abs(s.RuntimeDir); err == nil {
		s.RuntimeDir = dir
	}
	if s.Name == "" {
		s.Name = s.Stage
	}
	if s.HostEnv == nil {
		s.HostEnv = os.Environ()
	}
	if s.StartTimeout <= 0 {
		s.StartTimeout = defaultStartTimeout
	}
	if s.Logger == nil {
		s.Logger = hclog.NewNullLogger()
	}
	return s
}

// open makes all checks that are possible before the start, and returns the open binary.
func (s Spec) open() (*os.File, error) {
	if err := checkEnv(s.Env); err != nil {
		return nil, err
	}
	if err := checkSocketRoom(s.RuntimeDir, nil); err != nil {
		return nil, fmt.Errorf("runtime directory %s: %w", s.RuntimeDir, err)
	}
	if _, err := os.Stat(s.RuntimeDir); err != nil {
		return nil, fmt.Errorf("runtime directory: %w", err)
	}
	file, err := open(s.Binary)
	if err != nil {
		return nil, err
	}
	if err := s.verify(file); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// verify checks that the open binary is one that may be started.
func (s Spec) verify(file *os.File) error {
	if s.SHA256 != "" {
		if err := checkDigest(file, s.SHA256); err != nil {
			return err
		}
	}
	if s.Approve == nil {
		return nil
	}
	contents, err := contentsOf(file)
	if err != nil {
		return err
	}
	return s.Approve(contents)
}

// Start launches a stage, waits for its handshake and calls Describe. ctx bounds the start
// only; when it ends early, the process is killed. After an error, which is a *StartError
// if the binary passed its checks, nothing of the process is left.
func Start(ctx context.Context, spec Spec) (*Process, error) {
	spec = spec.withDefaults()
	file, err := spec.open()
	if err != nil {
		return nil, fmt.Errorf("stage %q: %w", spec.Stage, err)
	}
	defer file.Close()
	spec.Binary = file.Name()
	ctx, cancel := context.WithTimeout(ctx, spec.StartTimeout)
	defer cancel()
	p := newProcess(spec)
	stop := context.AfterFunc(ctx, p.child.kill)
	err = p.start(ctx, file)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err == nil {
		return p, nil
	}
	return nil, p.abandon(ctx, err)
}

// start launches the program and goes through handshake and Describe.
func (p *Process) start(ctx context.Context, file *os.File) error {
	if err := p.startPlugin(ctx, file); err != nil {
		return err
	}
	if err := p.newClient(); err != nil {
		return err
	}
	return p.describe(ctx)
}

// startPlugin launches the program and returns after its handshake.
func (p *Process) startPlugin(ctx context.Context, file *os.File) error {
	config := &plugin.ClientConfig{
		HandshakeConfig:  stagev1.Handshake(),
		Plugins:          stagev1.Plugins(nil),
		AllowedProtocols: []plugin.Protocol{plugin.ProtocolGRPC},
		AutoMTLS:         true,
		SkipHostEnv:      true,
		// Start has its own time-out, with a better error.
		StartTimeout:     p.spec.StartTimeout + time.Hour,
		Logger:           hclog.NewNullLogger(),
		SyncStdout:       p.syncStdout,
		SyncStderr:       p.syncStderr,
		UnixSocketConfig: &plugin.UnixSocketConfig{TempDir: p.spec.RuntimeDir},
		GRPCDialOptions: []grpc.DialOption{
			grpc.WithIdleTimeout(0), // a connection that gRPC has closed looks like a process that has ended
			grpc.WithUnaryInterceptor(p.unary),
			grpc.WithStreamInterceptor(p.stream),
			grpc.WithDefaultCallOptions(grpc.ForceCodecV2(decode.NewCodec())),
			grpc.WithMaxHeaderListSize(bounds.CallHeaders),
			grpc.WithContextDialer(p.dialControl),
		},
		RunnerFunc: func(_ hclog.Logger, cmd *exec.Cmd, dir string) (runner.Runner, error) {
			p.dir, p.handshake.socketDir = dir, filepath.Clean(dir)
			return &pluginRunner{
				child: p.child, handshake: p.handshake, name: p.spec.Binary, dir: dir,
				launch: func(context.Context) error { return p.run(ctx, file, dir, cmd.Env) },
			}, nil
		},
	}
	p.plugin = plugin.NewClient(config)
	_, err := p.plugin.Start()
	if err == nil {
		p.enforceLimits() // again: a runtime may have raised them while it came up
	}
	p.useControl(config)
	return err
}

// newClient makes the client. Its connection is closed when the process ends.
func (p *Process) newClient() error {
	protocol, err := p.plugin.Client()
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	raw, err := protocol.Dispense(stagev1.PluginName)
	if err != nil {
		return err
	}
	client, ok := raw.(stagev1.StageClient)
	if !ok {
		return fmt.Errorf("go-plugin returned a %T", raw)
	}
	p.client = client
	return nil
}

func (p *Process) describe(ctx context.Context) error {
	d, err := p.client.Describe(ctx, &stagev1.DescribeRequest{})
	switch {
	case status.Code(err) == codes.Unimplemented:
		return fmt.Errorf("is a plugin, but no Catena stage: it lacks the method Describe of the service catena.stage.v1.Stage")
	case err != nil:
		return err
	case d.GetName() == "":
		return errors.New("reports no name; a stage must respond to Describe with its name")
	case d.GetName() != p.spec.Name:
		return fmt.Errorf("reports the name %q, but is configured as %q; is it the right file?", d.GetName(), p.spec.Name)
	}
	p.description = printableDescription(d)
	p.mu.Lock()
	conns := slices.Clone(p.conns)
	p.mu.Unlock()
	awaitConnected(ctx, conns)
	p.described.Store(true)
	return nil
}

// printableDescription makes what people read of a description fit for one line each.
func printableDescription(d *stagev1.DescribeResponse) *stagev1.DescribeResponse {
	d.Version, d.Sdk, d.Summary = printable.Line(d.GetVersion()), printable.Line(d.GetSdk()), printable.Line(d.GetSummary())
	if k := d.GetKubernetes(); k != nil {
		k.Release = printable.Line(k.GetRelease())
	}
	return d
}

// abandon releases the resources of a start that has failed, and returns its error.
func (p *Process) abandon(ctx context.Context, err error) error {
	_, seen, problem := p.handshake.result()
	if p.PID() != 0 && (!seen || errors.Is(problem, errNoHandshake) || status.Code(err) == codes.Unavailable) {
		p.awaitExit(ctx, exitGrace)
	}
	p.dispose(ctx)
	return &StartError{
		Stage: p.spec.Stage, Path: p.spec.Binary,
		Err: p.explain(ctx, err), Log: p.logs.tail.text(),
	}
}

// explain returns the cause of the error with which the start has failed.
func (p *Process) explain(ctx context.Context, err error) error {
	line, seen, problem := p.handshake.result()
	exit := p.exit()
	var call *CallError
	switch {
	case p.launchErr != nil && ctx.Err() == nil:
		return p.launchErr
	case errors.Is(problem, errNoHandshake):
		return fmt.Errorf("is no Catena stage, or prints before its handshake: the first line on its standard output is %s; a stage must write nothing there before it serves, logs belong on standard error",
			quote(line))
	case problem != nil:
		return problem
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fmt.Errorf("%s within %s and was killed; %s stages.%s.startTimeout if it needs longer",
			unfinished(seen), p.spec.StartTimeout, advice(seen), p.spec.Stage)
	case ctx.Err() != nil:
		return fmt.Errorf("the start was cancelled: %w", context.Cause(ctx))
	case exit != nil && !exit.Killed && !seen:
		return fmt.Errorf("%s before the handshake%s", exit.Reason(), p.confinement())
	case exit != nil && !seen:
		return errors.New("closed its standard output before the handshake; it must stay open")
	case exit != nil && !exit.Killed:
		return fmt.Errorf("%s right after the handshake%s", exit.Reason(), p.confinement())
	case errors.As(err, &call):
		return fmt.Errorf("%s: %s", call.Method, call.Status.Message())
	}
	return err
}

// confinement says what may be the reason why an isolated process ends.
func (p *Process) confinement() string {
	if len(p.Isolation()) == 0 {
		return ""
	}
	return fmt.Sprintf("; it is isolated: files of its own that are not beside it have to be in stages.%s.grants.files", p.spec.Stage)
}

// dispose kills the process and releases its resources.
func (p *Process) dispose(ctx context.Context) {
	if p.PID() == 0 {
		p.release()
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), killGrace)
	defer cancel()
	_ = p.Kill(ctx)
	p.closeConns() // go-plugin may have made one more since the release
}

func unfinished(handshake bool) string {
	if handshake {
		return "did not respond to Describe"
	}
	return "did not send its handshake"
}

// advice is what to do about a start that is unfinished: it ends before the key of its time.
func advice(handshake bool) string {
	if handshake {
		return "raise"
	}
	return "if it has written it, its standard output is buffered, and must be flushed; raise"
}

// quote returns the beginning of a line, with unprintable characters escaped.
func quote(line string) string {
	const most = 120
	if len(line) > most {
		return fmt.Sprintf("%.*q…", most, line)
	}
	return fmt.Sprintf("%q", line)
}
