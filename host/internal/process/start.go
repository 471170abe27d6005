package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"github.com/hashicorp/go-plugin/runner"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/catena-dev/catena/sdk/stagev1"
)

const (
	defaultStartTimeout = time.Minute
	// exitGrace is how long a start that has failed waits for the process to end by
	// itself, to say how it did.
	exitGrace = time.Second
	// maxMessage bounds what a stage can make the host hold for one gRPC message.
	maxMessage = 32 << 20
)

// Spec says what to start.
type Spec struct {
	// Stage is the name in the chain. It is part of every error and log line.
	Stage string
	// Name is what the binary must say that it is; Stage if empty.
	Name string
	// Attach, if not empty, is the folder of the sockets of a process that was started
	// by hand: Connect attaches to that and starts nothing. Of the members below, only
	// AttachWait, StartTimeout and Logger count then.
	Attach string
	// AttachWait is how long to wait for such a process; StartTimeout if 0.
	AttachWait time.Duration
	// Binary is the path of what to start. It is checked as by Check.
	Binary string
	// SHA256, if not empty, is the digest that the binary must have, in hexadecimal.
	// The file whose digest is compared is the one that is started.
	SHA256 string
	// Listener is the data socket that the process inherits. It stays the caller's.
	Listener *Listener
	// RuntimeDir is the folder for the socket of the control plane. It
	// has to exist and to keep other users out.
	RuntimeDir string
	// Env is added to the environment.
	Env map[string]string
	// HostEnv is the environment from which the process inherits what the package's
	// documentation lists; os.Environ if nil.
	HostEnv []string
	// StartTimeout bounds the time until the process has described itself; a minute if 0.
	StartTimeout time.Duration
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

// open returns the binary after all checks that can be made before it runs.
func (s Spec) open() (*os.File, error) {
	if err := checkEnv(s.Env); err != nil {
		return nil, err
	}
	if err := checkSocketRoom(s.RuntimeDir, nil); err != nil {
		return nil, fmt.Errorf("runtime folder %s: %w", s.RuntimeDir, err)
	}
	if _, err := os.Stat(s.RuntimeDir); err != nil {
		return nil, fmt.Errorf("runtime folder: %w", err)
	}
	file, err := open(s.Binary)
	if err != nil || s.SHA256 == "" {
		return file, err
	}
	if err := checkDigest(file, s.SHA256); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// Start launches a stage, shakes hands with it and lets it describe itself. ctx
// bounds the start only; when it ends early, the process is killed. After an error,
// which is a *StartError if the binary itself was good, nothing is left behind.
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
	err = p.bringUp(ctx, file)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err == nil {
		return p, nil
	}
	return nil, p.abandon(ctx, err)
}

// bringUp goes through launch, handshake and Describe.
func (p *Process) bringUp(ctx context.Context, file *os.File) error {
	if err := p.shakeHands(ctx, file); err != nil {
		return err
	}
	if err := p.connect(); err != nil {
		return err
	}
	return p.describe(ctx)
}

// shakeHands launches the program and returns when it has said where it listens.
func (p *Process) shakeHands(ctx context.Context, file *os.File) error {
	config := &plugin.ClientConfig{
		HandshakeConfig:  stagev1.Handshake(),
		Plugins:          stagev1.Plugins(nil),
		AllowedProtocols: []plugin.Protocol{plugin.ProtocolGRPC},
		AutoMTLS:         true,
		SkipHostEnv:      true,
		// This package ends what lasts too long, and says so.
		StartTimeout:     p.spec.StartTimeout + time.Hour,
		Logger:           hclog.NewNullLogger(),
		SyncStdout:       p.syncStdout,
		SyncStderr:       p.syncStderr,
		UnixSocketConfig: &plugin.UnixSocketConfig{TempDir: p.spec.RuntimeDir},
		GRPCDialOptions: []grpc.DialOption{
			grpc.WithUnaryInterceptor(p.unary),
			grpc.WithStreamInterceptor(p.stream),
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)),
			grpc.WithContextDialer(p.dialControl),
		},
		RunnerFunc: func(_ hclog.Logger, cmd *exec.Cmd, dir string) (runner.Runner, error) {
			p.dir, p.greeting.socketDir = dir, filepath.Clean(dir)
			return &pluginRunner{
				child: p.child, greeting: p.greeting, name: p.spec.Binary,
				launch: func(context.Context) error { return p.run(ctx, file, dir, cmd.Env) },
			}, nil
		},
	}
	p.plugin = plugin.NewClient(config)
	_, err := p.plugin.Start()
	p.useControl(config)
	return err
}

// connect makes the client. It ends when the process does.
func (p *Process) connect() error {
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
		return fmt.Errorf("is a plugin, but no Catena stage: it has no method Describe of service catena.stage.v1.Stage")
	case err != nil:
		return err
	case d.GetName() == "":
		return errors.New("reports no name; a stage must answer Describe with its name")
	case d.GetName() != p.spec.Name:
		return fmt.Errorf("reports the name %q, but stands in the chain as %q; is it the right file?", d.GetName(), p.spec.Name)
	}
	p.description = d
	return nil
}

// abandon ends a start that has failed and returns the error to report.
func (p *Process) abandon(ctx context.Context, err error) error {
	_, seen, problem := p.greeting.verdict()
	if p.PID() != 0 && (!seen || errors.Is(problem, errNoHandshake) || status.Code(err) == codes.Unavailable) {
		p.awaitExit(ctx, exitGrace)
	}
	p.dispose(ctx)
	return &StartError{
		Stage: p.spec.Stage, Path: p.spec.Binary,
		Err: p.explain(ctx, err), Log: p.logs.tail.text(),
	}
}

// explain finds the cause behind the error that came to light first.
func (p *Process) explain(ctx context.Context, err error) error {
	line, seen, problem := p.greeting.verdict()
	exit := p.exit()
	var call *CallError
	switch {
	case errors.Is(problem, errNoHandshake):
		return fmt.Errorf("is no Catena stage, or prints before its handshake: the first line on its standard output is %s; a stage must write nothing there before it serves, logs belong on standard error",
			quote(line))
	case problem != nil:
		return problem
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fmt.Errorf("%s within %s and was killed; raise startTimeout if it needs longer", unfinished(seen), p.spec.StartTimeout)
	case ctx.Err() != nil:
		return fmt.Errorf("the start was cancelled: %w", context.Cause(ctx))
	case exit != nil && !exit.Killed && !seen:
		return fmt.Errorf("%s before the handshake", exit.Reason())
	case exit != nil && !seen:
		return errors.New("closed its standard output before the handshake; it must stay open")
	case exit != nil && !exit.Killed:
		return fmt.Errorf("%s right after the handshake", exit.Reason())
	case errors.As(err, &call):
		return fmt.Errorf("%s: %s", call.Method, call.Status.Message())
	}
	return err
}

// dispose ends what a failed start has begun.
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
		return "did not answer Describe"
	}
	return "did not send its handshake"
}

// quote shows the beginning of a line that may hold anything.
func quote(line string) string {
	const most = 120
	if len(line) > most {
		return fmt.Sprintf("%.*q…", most, line)
	}
	return fmt.Sprintf("%q", line)
}
