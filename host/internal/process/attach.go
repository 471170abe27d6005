package process

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/catena-dev/catena/host/internal/bounds"
	"github.com/catena-dev/catena/host/internal/cgroup"
	"github.com/catena-dev/catena/host/internal/decode"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// Running is a process of a stage: one that Start has launched, or one that Attach has
// connected to. All methods may be called at any time from any goroutine.
type Running interface {
	PID() int
	Client() stagev1.StageClient
	Description() *stagev1.DescribeResponse
	// Isolation returns the names of what isolates the process, and IsolationLacks what the
	// machine lacks for more.
	Isolation() []string
	IsolationLacks() []error
	// CanRead reports whether the process can read a file, as far as its isolation goes.
	CanRead(path string) bool
	// Reached counts how often the process has come to its limits in the kernel.
	Reached() cgroup.Reached
	// Done is closed when the process has ended, or the attachment to it.
	Done() <-chan struct{}
	// Err returns nil until Done is closed, and the reason from then on. It never blocks.
	Err() error
	// Kill ends a launched process at once, and only detaches from an attached one.
	Kill(ctx context.Context) error
	// KillBecause is Kill for a reason, which Err reports of a launched process.
	KillBecause(ctx context.Context, reason string) error
	// Stop asks the stage to release its resources, and then does what Kill does.
	Stop(ctx context.Context) error
}

var (
	_ Running = (*Process)(nil)
	_ Running = (*Attached)(nil)
)

// Connect attaches to a running process if spec.Attach is set, and starts one otherwise.
func Connect(ctx context.Context, spec Spec) (Running, error) {
	if spec.Attach != "" {
		return asRunning(Attach(ctx, spec))
	}
	return asRunning(Start(ctx, spec))
}

// asRunning keeps a nil pointer from becoming an interface that is not nil.
func asRunning[P Running](p P, err error) (Running, error) {
	if err != nil {
		return nil, err
	}
	return p, nil
}

// AttachedListener returns the Listener of an attached process, which owns its data socket.
func AttachedListener(dir string) *Listener {
	return &Listener{path: filepath.Join(dir, stagev1.DebugDataSocket)}
}

// Attached is a process that this one uses and has not started. It is never killed: it
// may be stopped at a breakpoint.
type Attached struct {
	spec        Spec
	pid         int
	conn        *grpc.ClientConn
	client      stagev1.StageClient
	description *stagev1.DescribeResponse

	done chan struct{}
	once sync.Once
	err  error // valid when done is closed
}

// attachPoll is how often Attach looks for a process that is not there.
const attachPoll = 100 * time.Millisecond

// notWaitingError is that no process waits for a host, yet.
type notWaitingError struct{ error }

func isNotWaiting(err error) bool {
	_, ok := errors.AsType[notWaitingError](err)
	return ok
}

// Attach waits for a process of the stage that was started by hand, connects to it and
// calls Describe. ctx, AttachWait and StartTimeout bound the wait. The directory
// spec.Attach has to keep other users out, and the process has to be this user's.
func Attach(ctx context.Context, spec Spec) (*Attached, error) {
	spec = spec.withDefaults()
	ctx, cancel := context.WithTimeout(ctx, spec.StartTimeout)
	defer cancel()
	waiting := ctx
	if spec.AttachWait > 0 {
		waiting, cancel = context.WithTimeout(ctx, spec.AttachWait)
		defer cancel()
	}
	logged := ""
	for {
		a, err := attach(ctx, spec)
		if !isNotWaiting(err) {
			return a, err
		}
		if logged != err.Error() && spec.AttachWait == 0 {
			logged = err.Error()
			spec.Logger.Info("waiting for a process of the stage to attach to", "start", "--debug="+spec.Attach, "now", logged)
		}
		select {
		case <-waiting.Done():
			return nil, fmt.Errorf("stage %q: there is no process to attach to, start one with --debug=%s: %w (%w)",
				spec.Stage, spec.Attach, err, context.Cause(waiting))
		case <-time.After(attachPoll):
		}
	}
}

// attach tries once.
func attach(ctx context.Context, spec Spec) (*Attached, error) {
	err := stagev1.CheckDebugDir(spec.Attach)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, notWaitingError{err}
	} else if err != nil {
		return nil, fmt.Errorf("stage %q: attach: %w", spec.Stage, err)
	}
	conn, pid, err := dialDebug(ctx, spec.Attach, stagev1.DebugControlSocket)
	if err != nil && !isNotWaiting(err) {
		err = fmt.Errorf("stage %q: attach: %w", spec.Stage, err)
	}
	if err != nil {
		return nil, err
	}
	a := &Attached{spec: spec, pid: pid, done: make(chan struct{})}
	if err := a.connect(conn); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	if err := a.describe(ctx); err != nil {
		if a.Err() != nil {
			return nil, notWaitingError{fmt.Errorf("process %d closes the connection at once, it may have another host", pid)}
		}
		a.end(err)
		return nil, fmt.Errorf("stage %q: attach to process %d: %w", spec.Stage, pid, err)
	}
	return a, nil
}

// dialDebug connects to a socket of a process in the directory.
func dialDebug(ctx context.Context, dir, name string) (conn *net.UnixConn, pid int, err error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", filepath.Join(dir, name))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
		return nil, 0, notWaitingError{err}
	} else if err != nil {
		return nil, 0, err
	}
	conn = c.(*net.UnixConn)
	if pid, err = peerOf(conn, os.Geteuid()); err != nil {
		return nil, 0, errors.Join(err, conn.Close())
	}
	return conn, pid, nil
}

// connect makes the client over the one connection. The attachment ends when that is closed.
func (a *Attached) connect(conn net.Conn) error {
	watched := &watchedConn{Conn: conn, closed: func() {
		a.end(fmt.Errorf("stage %q: the process that the host was attached to, %d, has ended or closed the connection",
			a.spec.Stage, a.pid))
	}}
	var once sync.Once
	var err error
	a.conn, err = grpc.NewClient("passthrough:///"+a.spec.Stage,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithIdleTimeout(0),
		grpc.WithUnaryInterceptor(a.interceptor().unary),
		grpc.WithStreamInterceptor(a.interceptor().stream),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(decode.NewCodec())),
		grpc.WithMaxHeaderListSize(bounds.CallHeaders),
		grpc.WithContextDialer(func(context.Context, string) (c net.Conn, err error) {
			err = errors.New("the connection has ended")
			once.Do(func() { c, err = watched, nil })
			return c, err
		}))
	if err != nil {
		return fmt.Errorf("stage %q: attach: %w", a.spec.Stage, err)
	}
	a.client = stagev1.NewStageClient(a.conn)
	return nil
}

// watchedConn calls closed when it is closed.
type watchedConn struct {
	net.Conn
	closed func()
}

func (c *watchedConn) Close() error {
	err := c.Conn.Close()
	c.closed()
	return err
}

// end detaches from the process. Later reasons are ignored.
func (a *Attached) end(reason error) {
	a.once.Do(func() {
		a.err = reason
		close(a.done)
		go a.conn.Close() // not in this goroutine, which may be in conn.Close
	})
}

// describe checks that the process is the stage, and that its data socket is its own.
func (a *Attached) describe(ctx context.Context) error {
	d, err := a.client.Describe(ctx, &stagev1.DescribeRequest{})
	switch {
	case err != nil:
		return err
	case d.GetName() != a.spec.Name:
		return fmt.Errorf("it reports the name %q, but is configured as %q", d.GetName(), a.spec.Name)
	}
	a.description = printableDescription(d)
	data, pid, err := dialDebug(ctx, a.spec.Attach, stagev1.DebugDataSocket)
	if err != nil {
		return fmt.Errorf("data socket: %v", err) //nolint:errorlint // must not look like notWaitingError
	}
	defer data.Close()
	if pid != a.pid {
		return fmt.Errorf("data socket: it belongs to process %d", pid)
	}
	return nil
}

// PID returns the id of the process.
func (a *Attached) PID() int { return a.pid }

// Client returns the client of the stage. Its errors are of type *CallError.
func (a *Attached) Client() stagev1.StageClient { return a.client }

// Description returns the stage's response to Describe.
func (a *Attached) Description() *stagev1.DescribeResponse { return a.description }

// Isolation returns nothing: the process was started by hand, as its user wanted it.
func (a *Attached) Isolation() []string { return nil }

// IsolationLacks returns nothing.
func (a *Attached) IsolationLacks() []error { return nil }

// CanRead returns true.
func (a *Attached) CanRead(string) bool { return true }

// Reached returns nothing.
func (a *Attached) Reached() cgroup.Reached { return cgroup.Reached{} }

// Done is closed when the connection to the process has ended.
func (a *Attached) Done() <-chan struct{} { return a.done }

// Err returns nil until Done is closed, and then the reason.
func (a *Attached) Err() error {
	select {
	case <-a.done:
		return a.err
	default:
		return nil
	}
}

// Kill closes the connection to the process, which keeps running.
func (a *Attached) Kill(context.Context) error {
	a.end(fmt.Errorf("stage %q: the host has detached from process %d", a.spec.Stage, a.pid))
	return nil
}

// KillBecause is Kill.
func (a *Attached) KillBecause(ctx context.Context, _ string) error { return a.Kill(ctx) }

// Stop asks the stage to release its resources, and then does what Kill does.
func (a *Attached) Stop(ctx context.Context) error {
	_, err := a.client.Stop(ctx, &stagev1.StopRequest{})
	if code := status.Code(err); code == codes.Unimplemented || code == codes.Unavailable {
		err = nil
	}
	return errors.Join(err, a.Kill(ctx))
}
