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

	"github.com/prometheus/client_golang/prometheus"

	"github.com/catena-dev/catena/host/internal/admin"
	"github.com/catena-dev/catena/host/internal/callers"
	"github.com/catena-dev/catena/host/internal/config"
	"github.com/catena-dev/catena/host/internal/dashboard"
	"github.com/catena-dev/catena/host/internal/declared"
	"github.com/catena-dev/catena/host/internal/front"
	"github.com/catena-dev/catena/host/internal/handover"
	"github.com/catena-dev/catena/host/internal/metrics"
	"github.com/catena-dev/catena/host/internal/panics"
	"github.com/catena-dev/catena/host/internal/pki"
	"github.com/catena-dev/catena/host/internal/problems"
	"github.com/catena-dev/catena/host/internal/scheduling"
	"github.com/catena-dev/catena/host/internal/store"
	"github.com/catena-dev/catena/host/internal/supervisor"
	"github.com/catena-dev/catena/host/internal/systemd"
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

// run is the wiring of one run. Its parts are made in this order, each when all that it needs is there. What is opened
// is registered in undo at once, so that an error at any step, as well as a planned end, closes it in reverse order.
type run struct {
	Options
	life      life
	logs      *logs
	undo      closers
	live      *live
	data      data
	flags     *front.Flags
	front     *front.Frontend
	stages    *supervisor.Supervisor
	chain     *chainState
	journal   *journal
	shutdown  *shutdown
	commands  *commands
	dashboard *dashboard.Handler
}

// life is the time of a run.
type life struct {
	began time.Time
	over  chan struct{} // closed when the run is
	// end ends the run: with a *handover.Handover, another program goes on.
	end context.CancelCauseFunc
}

// data is what a server has on this machine, and in its store.
type data struct {
	callers    *callers.Callers
	runtimeDir string
	cgroup     string // the name of its groups; "" if there can be none
	storage    store.Options
	store      *store.Opening
	// certificates are nil with the defaults of kube-apiserver.
	certificates *certificates
}

// Run runs the server until ctx ends, or until something fails that it cannot do without. The error is a
// *handover.Handover if another program is to go on. Mistakes of the operator are found before anything is started.
func Run(ctx context.Context, opts Options) (err error) {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	r := &run{
		Options: opts, life: life{began: time.Now(), over: make(chan struct{}), end: end},
		logs: newLogs(opts.Config.Log), live: newLive(opts.Config),
	}
	defer close(r.life.over)
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
	if err := r.start(ctx); err != nil {
		if r.interrupted(ctx) {
			return nil
		}
		if lost := (front.Lost{}); errors.As(context.Cause(ctx), &lost) {
			return lost
		}
		return err
	}
	return r.serve(ctx)
}

// start makes all parts, and brings the stages up.
func (r *run) start(ctx context.Context) error {
	specs, err := check(ctx, r.Options)
	if err != nil {
		return err
	}
	for _, step := range []func() error{
		r.openData,
		func() error { return r.parseFlags(ctx) },
		func() error { return r.beginStore(ctx) },
		func() error { return r.openFront(ctx, specs) },
		func() error { return r.buildChain(ctx, specs) },
		r.openAdmin,
		func() error { return r.startStages(ctx) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
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
func (r *run) openData() error {
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
	r.data.cgroup = endLeftBehind(dir, r.logs.host)
	if r.data.runtimeDir, err = prepareRuntimeDir(r.Config.RuntimeDir, dir, r.Config.Order); err != nil {
		return err
	}
	if r.Config.RuntimeDir == "" {
		r.undo.add("runtime directory", func() error {
			_ = os.Remove(r.data.runtimeDir) // if nothing is left in it
			return nil
		})
	}
	if r.data.callers, err = callers.Open(dir); err != nil {
		return err
	}
	r.data.storage = declared.StoreOptions(r.Config, dir, r.data.runtimeDir)
	r.data.storage.Admit, r.data.storage.Ephemeral = r.data.callers.AdmitRegistry, r.Ephemeral
	r.data.storage.Lock, r.data.storage.Logger = lock, r.logs.libraries.Named("etcd")
	return nil
}

// beginStore begins to open the store. The member of an embedded etcd mostly waits for its election, and an external
// cluster may be far away: meanwhile the front is opened, and stages are launched.
func (r *run) beginStore(ctx context.Context) error {
	r.data.store = store.Begin(ctx, r.data.storage)
	r.undo.add("store", r.data.store.Close)
	return nil
}

// openFront binds the port, so that one that is in use is found before the stages start, and reads the binaries of
// stages at the same time.
func (r *run) openFront(ctx context.Context, specs []supervisor.Spec) error {
	digested := make(chan error, 1)
	go func() { digested <- panics.Call(func() error { return declared.AddDigests(r.Config, specs, false) }) }()
	var err error
	r.background(ctx, (&idle.Program{OneProcessor: true}).Run)
	r.front, err = front.New(ctx, front.Options{
		Flags: r.flags, Listener: r.Systemd.Listener, Metrics: r.metrics, Streams: []string{eventsPath},
		HoldUntilReady: r.Handover.TakesOver(), Log: r.logs.host.Named("front"),
	})
	digestErr := <-digested
	if err != nil {
		return problems.List(problems.Locate(r.Config, err))
	}
	r.undo.add("front", func() error {
		if r.shutdown != nil && r.shutdown.ran {
			return nil // it has closed itself
		}
		return r.front.Close()
	})
	return problems.List(digestErr)
}

// metrics is what /metrics shows: the host's own series, and those of all stages. It is shown when there is a chain.
func (r *run) metrics(own prometheus.Gatherers) prometheus.Gatherer {
	return metrics.New(metrics.Options{
		Own: own, Log: r.logs.host.Named("metrics"),
		Stages: func() []metrics.Source { return r.chain.metricsSources(r.stages.GatherMetrics) },
	})
}

// openAdmin lets commands in, which see the start of the stages, and makes the pages that show the same.
func (r *run) openAdmin() error {
	tap := trial.NewTap(r.chain.relay)
	r.front.SetChain(tap)
	trials := &trial.Trials{
		Releases: &trial.Releases{
			Front: r.front, Stages: r.stages, Published: r.chain.stages,
			Prefix: r.Config.Store.Prefix, Storage: r.data.storage,
		},
		Config: r.live.config, Flags: r.flags, Tap: tap, RuntimeDir: r.data.runtimeDir,
		MayRead: r.data.callers.AdmitRegistry, Serving: &r.chain.serving, Log: r.logs.host, Panicked: r.logs.panicked,
	}
	reloader := &reloader{
		live: r.live, load: r.Load, reloaded: r.journal.reloaded, attach: r.Attach, logs: r.logs, front: r.front,
		stages: r.stages, relay: r.chain.relay, notifier: r.journal.notifier, certificates: r.data.certificates,
		ends: &pki.Ends{File: r.flags.Value, Log: r.logs.host, Observe: r.journal.certificate},
	}
	r.commands = &commands{
		Trials: trials, logs: r.logs, source: r.Source, front: r.front, stages: r.stages, chain: r.chain,
		journal: r.journal, reloader: reloader, checks: &checkResults{front: r.front},
		version: r.Version, started: r.life.began,
		upgrader: &upgrader{
			inherited: r.Handover, service: r.Systemd, version: r.Version, log: r.logs.host, front: r.front,
			stages: r.stages, chain: r.chain, journal: r.journal, end: r.life.end,
		},
	}
	r.dashboard = handlePages(r.commands)
	closeSocket, err := admin.Serve(r.data.runtimeDir, r.commands, r.data.callers.AdmitNone, r.logs.serverErrors())
	if err != nil {
		return err
	}
	r.undo.add("trials", trials.Close)
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
	if err := r.registerStages(); err != nil {
		return err
	}
	reloader := r.commands.reloader
	r.front.Metrics().ObserveConfig(r.life.began)
	r.chain.serving.Store(true)
	for _, f := range []func(context.Context){
		func(ctx context.Context) { gctune.Headroom(ctx, headroom) },
		r.chain.traffic.Run,
		func(ctx context.Context) { r.keys().recordLater(ctx, r.front.Ready()) },
		(&storeMonitor{
			storage: r.data.storage, log: r.logs.host, journal: r.journal, relay: r.chain.relay, stages: r.stages,
			background: r.background,
		}).run,
		r.announce,
		func(ctx context.Context) { r.journal.tellVoidClaims(ctx, r.chain.void) },
		r.commands.upgrader.takeOver,
		func(ctx context.Context) { r.journal.notifier.follow(ctx, r.front) },
		func(ctx context.Context) { r.journal.writeEvents(ctx, r.chain) },
		func(ctx context.Context) { reloader.follow(ctx, r.Reload) },
		(&pluginWatcher{log: r.logs.host, stages: r.stages, reloader: reloader}).run,
		reloader.ends.Follow,
		r.data.certificates.renew,
	} {
		r.background(ctx, f)
	}
	r.logs.host.Info("serving", "address", r.front.Addr().String())
	err := r.shutdown.runFront(ctx, r.signaled)
	select {
	case <-r.front.Ready():
	default:
		r.logs.failed.Store(err != nil && ctx.Err() == nil)
	}
	r.logs.host.Info("no longer serving", "address", r.front.Addr().String())
	return err
}

// signaled records a lifecycle signal and passes it on to the stages.
func (r *run) signaled(name string, at time.Time) {
	r.logs.host.Info("lifecycle signal", "signal", name, "at", at.UTC().Format(time.RFC3339Nano))
	r.journal.history.signal(admin.Signal{Name: name, At: at})
	if name == front.ShutdownInitiated {
		r.journal.notifier.stop()
		r.commands.Stop()
		r.dashboard.Close()
	}
	r.stages.Notify(name, at)
}
