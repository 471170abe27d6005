// Package server is one run of the host: it opens the data directory, the front, the store
// and the chain of stages, publishes each new state of the chain, applies new
// configurations, and ends all of it in order.
package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/catena-dev/catena/host/internal/admin"
	"github.com/catena-dev/catena/host/internal/callers"
	"github.com/catena-dev/catena/host/internal/config"
	"github.com/catena-dev/catena/host/internal/dashboard"
	"github.com/catena-dev/catena/host/internal/declared"
	"github.com/catena-dev/catena/host/internal/faults"
	"github.com/catena-dev/catena/host/internal/front"
	"github.com/catena-dev/catena/host/internal/handover"
	"github.com/catena-dev/catena/host/internal/kubeevents"
	"github.com/catena-dev/catena/host/internal/panics"
	"github.com/catena-dev/catena/host/internal/pki"
	"github.com/catena-dev/catena/host/internal/problems"
	"github.com/catena-dev/catena/host/internal/scheduling"
	"github.com/catena-dev/catena/host/internal/store"
	"github.com/catena-dev/catena/host/internal/supervisor"
	"github.com/catena-dev/catena/host/internal/systemd"
	"github.com/catena-dev/catena/host/internal/traffic"
	"github.com/catena-dev/catena/host/internal/trial"
	"github.com/catena-dev/catena/internal/gctune"
	"github.com/catena-dev/catena/internal/idle"
)

// Options say what to run.
type Options struct {
	Config *config.Config
	// Source is what Config was read from, for commands that read it too.
	Source admin.Source
	// Load reads the configuration anew, for reloads.
	Load func() (*config.Config, error)
	// DataDir is the lock of the data directory, if the caller has it already.
	DataDir *store.DirLock
	Attach  declared.Attachments
	// Out gets a line for each stage that comes up and, when the server is ready, how to
	// reach it.
	Out io.Writer
	// Reload asks for a reload of the configuration with each value.
	Reload <-chan os.Signal
	// Systemd is what systemd has passed to this process.
	Systemd systemd.Service
	// Force ends the server without regard to requests when it is closed.
	Force <-chan struct{}
	// Handover is what this program has taken over from another one in the same process, and what it goes back to.
	Handover *handover.Inherited
	// ReplaceKeys makes the keys of this host those of the cluster, whichever it had.
	ReplaceKeys bool
	// Ephemeral does not sync the embedded etcd's files: no server starts with them again.
	Ephemeral bool
	// Version is that of Catena.
	Version string
}

// Stopped is the cause of the end of a context with which Run returns without an error,
// even during the start.
type Stopped struct{ Signal os.Signal }

func (s Stopped) Error() string { return "stopped by signal: " + s.Signal.String() }

// run is the wiring of one run. Its parts are made in this order. What is opened is
// registered in undo at once, so that an error at any step, as well as a planned end,
// closes it in reverse order.
type run struct {
	Options
	started time.Time
	logs    *logs
	undo    closers
	ended   chan struct{} // closed when the run is over

	specs        []supervisor.Spec
	callers      *callers.Callers
	runtimeDir   string
	cgroup       string // the name of its groups; "" if there can be none
	storage      store.Options
	flags        *front.Flags
	certificates *certificates // nil with the defaults of kube-apiserver
	signals      signals
	chain        *chainState
	front        *front.Frontend
	store        *store.Opening
	stages       *supervisor.Supervisor
	reloader     *reloader
	history      *history
	faults       faults.Host
	traffic      *traffic.Meter
	dashboard    *dashboard.Handler
	trials       *trial.Trials
	kubeEvents   *kubeevents.Recorder // may be nil
	commands     *commands
	shutdown     *shutdown
	notifier     *notifier
	// end ends the run: with a *handover.Handover, another program goes on.
	end context.CancelCauseFunc
}

// Run runs the server until ctx ends, or until something fails that it cannot do without. The error is a *handover.Handover if
// another program is to go on.
// Mistakes of the operator are found before anything is started.
func Run(ctx context.Context, opts Options) (err error) {
	r := &run{Options: opts, logs: newLogs(opts.Config.Log), started: time.Now(), ended: make(chan struct{}),
		history: newHistory(), traffic: traffic.New()}
	defer close(r.ended)
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	r.end = end
	defer func() {
		err = errors.Join(err, r.undo.close(r.logs.host))
		if next := (*handover.Handover)(nil); errors.As(context.Cause(ctx), &next) {
			if err != nil {
				r.logs.host.Error("the end before another program goes on", "error", err)
			}
			err = next
		}
	}()
	if err := scheduling.Set(opts.Config.CPUSchedulingPolicy); err != nil {
		r.logs.host.Info("the scheduling policy stays as it is", "error", err)
	}
	for _, step := range []func(context.Context) error{
		r.check, r.openData, r.parseFlags, r.beginStore, r.openFront, r.buildChain, r.openAdmin, r.startStages,
	} {
		if err := step(ctx); err != nil {
			if r.interrupted(ctx) {
				return nil
			}
			if lost := (front.Lost{}); errors.As(context.Cause(ctx), &lost) {
				return lost
			}
			return err
		}
	}
	return r.serve(ctx)
}

// interrupted reports whether the server was asked to end before it was ready, and logs
// that.
func (r *run) interrupted(ctx context.Context) bool {
	var stopped Stopped
	if !errors.As(context.Cause(ctx), &stopped) {
		return false
	}
	r.logs.interrupted.Store(true)
	r.logs.host.Info("interrupted before the server was ready", "signal", stopped.Signal.String())
	return true
}

// openData locks the data directory for this process and creates the one for sockets.
func (r *run) openData(context.Context) error {
	dir, err := filepath.Abs(r.Config.DataDir)
	if err != nil {
		return fmt.Errorf("dataDir: %w", err)
	}
	lock, release := r.DataDir, func() error { return nil }
	if lock == nil {
		if lock, err = store.LockDir(dir); err != nil {
			return err
		}
		release = lock.Release
	}
	r.logs.dataDir.Store(lock)
	r.undo.add("data directory", func() error {
		r.logs.dataDir.Store(nil)
		return release()
	})
	if lock.WasOpen {
		r.logs.host.Warn("the data directory was open to other users of this machine; it is closed to them now", "dir", dir)
	}
	if lock.Replaceable != nil {
		r.logs.host.Warn("other users of this machine could replace the data directory", "error", lock.Replaceable)
	}
	r.cgroup = r.endLeftBehind(dir)
	if r.runtimeDir, err = prepareRuntimeDir(r.Config.RuntimeDir, dir, r.Config.Order); err != nil {
		return err
	}
	if r.Config.RuntimeDir == "" {
		r.undo.add("runtime directory", func() error {
			_ = os.Remove(r.runtimeDir) // if nothing is left in it
			return nil
		})
	}
	if r.callers, err = callers.Open(dir); err != nil {
		return err
	}
	r.storage = declared.StoreOptions(r.Config, dir, r.runtimeDir)
	r.storage.Admit, r.storage.Ephemeral = r.callers.AdmitRegistry, r.Ephemeral
	r.storage.Lock, r.storage.Logger = lock, r.logs.libraries.Named("etcd")
	return nil
}

// beginStore begins to open the store. The member of an embedded etcd mostly waits for its election, and an external
// cluster may be far away: meanwhile the front is opened, and stages are launched.
func (r *run) beginStore(ctx context.Context) error {
	r.store = store.Begin(ctx, r.storage)
	r.undo.add("store", r.store.Close)
	return nil
}

// openFront binds the port, so that one that is in use is found before the stages start, and reads the binaries of stages at the same time.
func (r *run) openFront(ctx context.Context) error {
	digested := make(chan error, 1)
	go func() { digested <- panics.Call(func() error { return declared.AddDigests(r.Config, r.specs, false) }) }()
	var err error
	r.background(ctx, (&idle.Program{OneProcessor: true}).Run)
	r.front, err = front.New(ctx, front.Options{
		Flags: r.flags, Listener: r.Systemd.Listener, Metrics: r.metrics, Signal: r.signaled, Streams: []string{eventsPath},
		HoldUntilReady: r.Handover.TakesOver(), Log: r.logs.host.Named("front"),
	})
	digestErr := <-digested
	if err != nil {
		return problems.List(problems.Locate(r.Config, err))
	}
	if err := r.openEvents(); err != nil {
		return err
	}
	r.handlePages()
	r.shutdown = &shutdown{front: r.front, force: r.Force, lost: make(chan struct{})}
	r.undo.add("front", r.shutdown.closeFront)
	return problems.List(digestErr)
}

// openAdmin lets commands in, which see the start of the stages.
func (r *run) openAdmin(context.Context) error {
	r.reloader = &reloader{load: r.Load, reloaded: r.recordReload, attach: r.Attach, logs: r.logs, front: r.front,
		stages: r.stages, chain: r.chain, notifier: r.notifier}
	r.reloader.current.Store(r.Config)
	r.commands = &commands{
		log: r.logs.host, logs: r.logs, source: r.Source, signals: &r.signals, front: r.front, stages: r.stages,
		chain: r.chain, reloader: r.reloader, Trials: r.trials, history: r.history, traffic: r.traffic, checks: &checkResults{front: r.front},
		faults: &r.faults, version: r.Version, started: r.started, upgradeHost: r.upgradeHost,
	}
	closeSocket, err := admin.Serve(r.runtimeDir, r.commands, r.callers.AdmitNone, r.logs.serverErrors())
	if err != nil {
		return err
	}
	r.undo.add("trials", r.trials.Close)
	r.undo.add("admin socket", closeSocket)
	return nil
}

// againAfter is the time before what has panicked is run again.
const againAfter = time.Second

// background runs f on a goroutine until it returns, or ctx ends. If it panics, that is logged, and it is run again.
func (r *run) background(ctx context.Context, f func(context.Context)) {
	go func() {
		for ctx.Err() == nil {
			panicked := false
			panics.Contain(func() { f(ctx) }, func(err error) {
				panicked = true
				r.logs.panicked(err)
			})()
			if !panicked {
				return
			}
			select {
			case <-ctx.Done():
			case <-time.After(againAfter):
			}
		}
	}()
}

// headroom is what the host's heap grows by before it collects garbage.
const headroom = 64 << 20

// serve lets requests in, runs the stages' hooks and, when ctx ends, shuts down in
// Kubernetes' order.
func (r *run) serve(ctx context.Context) error {
	r.background(ctx, func(ctx context.Context) { gctune.Headroom(ctx, headroom) })
	r.background(ctx, r.traffic.Run)
	if err := r.registerStages(); err != nil {
		return err
	}
	r.background(ctx, r.recordKeysLater)
	r.background(ctx, r.monitorStore)
	r.background(ctx, r.announce)
	r.background(ctx, func(ctx context.Context) { tellVoidClaims(ctx, r) })
	r.background(ctx, r.takeOver)
	r.background(ctx, func(ctx context.Context) { r.notifier.follow(ctx, r.front) })
	r.background(ctx, r.writeEvents)
	r.front.Metrics().ObserveConfig(r.started)
	ends := &pki.Ends{File: r.flags.Value, Log: r.logs.host, Observe: func(c pki.Certificate) {
		r.front.Metrics().ObserveCertificate(c.Flag, c.End)
		if wrong := r.faults.Certificate(c); wrong != "" {
			r.history.add(admin.Event{Kind: faults.CertificateEnds, Text: wrong, Bad: true})
		}
	}}
	r.reloader.certificates = func() []string {
		r.certificates.renewNow()
		return ends.Look()
	}
	r.chain.serving.Store(true)
	r.background(ctx, func(ctx context.Context) { r.reloader.follow(ctx, r.Reload) })
	r.background(ctx, (&pluginWatcher{log: r.logs.host, stages: r.stages, reloader: r.reloader}).run)
	r.background(ctx, ends.Follow)
	if r.certificates != nil {
		r.background(ctx, r.certificates.renew)
	}
	r.logs.host.Info("serving", "address", r.front.Addr().String())
	err := r.shutdown.runFront(ctx)
	select {
	case <-r.front.Ready():
	default:
		r.logs.failed.Store(err != nil && ctx.Err() == nil)
	}
	r.logs.host.Info("no longer serving", "address", r.front.Addr().String())
	return err
}
