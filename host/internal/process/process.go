package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/catena-dev/catena/host/internal/cgroup"
	"github.com/catena-dev/catena/host/internal/isolation"
	"github.com/catena-dev/catena/sdk/stagev1"
)

const (
	// stopGrace is how long a stage that has released everything may take to end.
	stopGrace = 2 * time.Second
	// killGrace is how long the kernel may take to end a process that was killed.
	killGrace = 10 * time.Second
	// drainTime bounds how long the end of a process stays unreported while the host's log is
	// too slow to take the last of its output.
	drainTime = 250 * time.Millisecond
)

// Process is one running process of a stage. All methods may be called at any time
// from any goroutine.
type Process struct {
	spec        Spec
	started     time.Time
	client      stagev1.StageClient
	description *stagev1.DescribeResponse

	child     *child
	logs      *logs
	handshake *handshake
	streams   streams
	launcher  *isolation.Launcher // nil if nothing isolates the process
	launchErr error               // of the launcher
	lifeline  *os.File            // the process ends when this is closed
	plugin    *plugin.Client
	dir       string        // of this process alone; "" until go-plugin has made it
	done      chan struct{} // closed when the process has ended and its output was read
	released  chan struct{} // closed when all resources are released

	// syncStdout and syncStderr get what a Go program prints while go-plugin has replaced its
	// os.Stdout and os.Stderr.
	syncStdout, syncStderr *lineWriter

	described atomic.Bool // the connection has been in use

	mu    sync.Mutex
	conns []*grpc.ClientConn
}

func newProcess(spec Spec) *Process {
	l := newLogs(spec.Logger)
	return &Process{
		spec: spec, child: newChild(), logs: l,
		handshake:  newHandshake(l.line),
		done:       make(chan struct{}),
		released:   make(chan struct{}),
		syncStdout: l.writer(), syncStderr: l.writer(),
	}
}

// Stage returns the name in the chain.
func (p *Process) Stage() string { return p.spec.Stage }

// Binary returns the path of what was started.
func (p *Process) Binary() string { return p.spec.Binary }

// PID returns the id of the process and of its process group.
func (p *Process) PID() int { return p.child.pid() }

// Socket returns the path of the data socket.
func (p *Process) Socket() string { return p.spec.Listener.Path() }

// Client returns the client of the stage. Its errors are of type *CallError. Give each call a
// deadline (see WithTimeout): a stage that hangs or is suspended never responds. Calls of a
// process that has ended fail with code Unavailable.
func (p *Process) Client() stagev1.StageClient { return p.client }

// Description returns the stage's response to Describe.
func (p *Process) Description() *stagev1.DescribeResponse { return p.description }

// Done is closed when the process has ended, for whatever reason, and its output has been
// read. What was left of its process group, and of its cgroup if it has one, has been killed by then.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err returns nil until Done is closed, and then an *ExitError, also for status 0. It
// never blocks.
func (p *Process) Err() error {
	select {
	case <-p.done:
		return p.exit()
	default:
		return nil
	}
}

// Isolation returns the names of what isolates the process, as package isolation lists them.
func (p *Process) Isolation() []string {
	means := p.launcher.Means()
	if p.child.group != nil {
		means = append(slices.Clone(means), cgroup.Means)
	}
	return means
}

// IsolationLacks returns what this machine lacks to isolate the process by all means.
func (p *Process) IsolationLacks() []error { return p.launcher.Missing() }

// CanRead reports whether the process can read a file, as far as its isolation goes.
func (p *Process) CanRead(path string) bool { return p.launcher.CanRead(path) }

// Reached counts how often the process, with all that it has started, has come to its limits of the
// kernel.
func (p *Process) Reached() cgroup.Reached { return p.child.group.Reached() }

// LoseHost closes the pipe by which the process notices that its host has ended. The process
// should end then.
func (p *Process) LoseHost() error { return p.lifeline.Close() }

// Kill ends the process and its group at once, with all that it has started if it has a cgroup, and
// waits until all its resources in this process are released or ctx ends.
func (p *Process) Kill(ctx context.Context) error {
	p.child.kill()
	select {
	case <-p.released:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stage %q: process %d was killed but has not ended: %w", p.spec.Stage, p.PID(), ctx.Err())
	}
}

// KillBecause is Kill for a reason, which the *ExitError has.
func (p *Process) KillBecause(ctx context.Context, reason string) error {
	p.child.killBecause(reason)
	return p.Kill(ctx)
}

// Stop asks the stage to release its resources, then the process to end, and kills it
// if it has not ended two seconds later, or when ctx ends. It returns when Kill would.
// The error is the stage's, or that the process had to be killed.
func (p *Process) Stop(ctx context.Context) error {
	_, err := p.client.Stop(ctx, &stagev1.StopRequest{})
	if status.Code(err) == codes.Unimplemented {
		err = nil
	}
	if ctx.Err() == nil {
		go p.plugin.Kill() // asks the process to end, and waits
		p.awaitExit(ctx, stopGrace)
	}
	killCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), killGrace)
	defer cancel()
	if killErr := p.Kill(killCtx); killErr != nil {
		return errors.Join(err, killErr)
	}
	switch exit := p.exit(); {
	case exit.Killed:
		return errors.Join(err, fmt.Errorf("stage %q: process %d did not end by itself and was killed", p.spec.Stage, exit.PID))
	case !exit.State.Success():
		return errors.Join(err, exit)
	case status.Code(err) == codes.Unavailable:
		return nil // the process has ended before it has responded
	}
	return err
}

// exit returns nil until the process has ended, and if it was never started.
func (p *Process) exit() *ExitError {
	end := p.child.ended()
	if end.state == nil {
		return nil
	}
	exit := &ExitError{
		Stage: p.spec.Stage, PID: p.PID(), State: end.state, Killed: end.killed, Why: end.why,
		After: end.at.Sub(p.started), Log: p.logs.tail.text(),
	}
	if end.memory {
		exit.Limit = cgroup.Memory
		exit.Why = fmt.Sprintf("its memory reached the limit of %.1f MiB (stages.%s.limits.%s)",
			float64(p.spec.Limits.Memory)/(1<<20), p.spec.Stage, exit.Limit)
	}
	return exit
}

// run launches the program, and releases everything when it has ended.
func (p *Process) run(ctx context.Context, binary *os.File, dir string, env []string) error {
	if err := p.launch(ctx, binary, dir, env); err != nil {
		return err
	}
	p.streams.read(p.handshake, p.logs, func(err error) {
		p.spec.Logger.Error("its output cannot be read", "error", err)
		p.child.killBecause("its output could not be read: " + err.Error())
	})
	go func() {
		<-p.child.done
		p.drain()
		p.release()
	}()
	if p.launcher == nil {
		return nil
	}
	if err := p.launcher.Wait(); err != nil {
		p.launchErr = launchProblem(err)
	}
	return p.launchErr
}

// enforceLimits sets the limits of the process, and logs those that cannot be had.
func (p *Process) enforceLimits() {
	if err := p.limitFiles(); err != nil {
		p.spec.Logger.Warn("the limit of open files is not in force", "openFiles", p.spec.OpenFiles, "error", err)
	}
}

// drain waits until the output of the ended process has been logged, drainTime at most.
func (p *Process) drain() {
	p.streams.interrupt()
	finished := make(chan struct{})
	go func() {
		p.streams.readers.Wait()
		p.syncStdout.flush()
		p.syncStderr.flush()
		close(finished)
	}()
	select {
	case <-finished:
	case <-time.After(drainTime):
	}
}

// release closes and removes all resources of the process, which has ended or was never started.
func (p *Process) release() {
	p.handshake.end()
	close(p.done)
	p.plugin.Kill() // only releases resources: the process has ended
	p.streams.close()
	_ = p.lifeline.Close()
	if p.dir != "" {
		_ = discard(p.dir)
	}
	p.logs.close()
	p.launcher.End()
	p.leave()
	close(p.released)
}

// closeConns closes the connections that go-plugin leaves open when its client cannot be made.
func (p *Process) closeConns() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		_ = c.Close()
	}
	p.conns = nil
}
