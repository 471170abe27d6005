package server

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/catena-dev/catena/host/internal/config"
	"github.com/catena-dev/catena/host/internal/declared"
	"github.com/catena-dev/catena/host/internal/front"
	"github.com/catena-dev/catena/host/internal/isolation"
	"github.com/catena-dev/catena/host/internal/leaders"
	"github.com/catena-dev/catena/host/internal/panics"
	"github.com/catena-dev/catena/host/internal/problems"
	"github.com/catena-dev/catena/host/internal/process"
	"github.com/catena-dev/catena/host/internal/relay"
	"github.com/catena-dev/catena/host/internal/supervisor"
	"github.com/catena-dev/catena/host/internal/trial"
)

// buildChain makes the relay, the sockets on which the stages call the host, and the
// supervisor.
func (r *run) buildChain(ctx context.Context) error {
	r.chain = &chainState{
		front: r.front, claims: newClaimsFile(r.storage.Dir, r.logs.host), faults: &r.faults, void: make(chan struct{}, 1),
	}
	r.undo.add("claims file", r.chain.claims.close)
	level, makeLevel, err := newLevel(r.front, r.chain, r.logs.host)
	if err != nil {
		return err
	}
	r.background(ctx, makeLevel)
	routing := &routing{
		front: r.front, log: r.logs.host, traffic: r.traffic, level: level, followers: config.BuiltinStages(),
	}
	r.chain.relay = relay.NewChain(relay.Config{
		Dial: dialStage, NotFound: http.HandlerFunc(routing.notFound), Error: routing.stageError,
		Propagator: r.front.Propagator(), Observe: routing.observe,
		System: front.IsSystemRequest, User: front.UserName, Limited: routing.limited, Watch: front.IsWatch,
		Watches: func(stage string) relay.WatchMode { return r.reloader.watchMode(stage) },
		Hold:    relay.Limits{Requests: int(r.Config.HoldRequests)},
	})
	r.undo.add("relay", func() error {
		r.chain.relay.Close()
		return nil
	})
	tap := trial.NewTap(r.chain.relay)
	r.front.SetChain(tap)

	leads := leaders.New(r.Config.Store.Prefix, func() (*clientv3.Client, error) {
		if _, err := r.store.Await(); err != nil {
			return nil, err
		}
		return r.storage.Connect()
	})
	r.undo.add("leaders", leads.Close)
	handler := &relay.HostHandler{Chain: r.chain.relay, API: r.front.Handler(), Caller: routing.caller, As: routing.as,
		Authorize: r.front.AuthorizeRewritten, Again: r.front.AuditAgain, Refuse: routing.refuse,
		Initialized: front.WatchInitialized, Lead: leads.Serve}
	sockets := &stageSockets{dir: r.runtimeDir, handler: handler, callers: r.callers, routing: routing, errorLog: r.logs.serverErrors()}
	r.undo.add("sockets of stages", sockets.close)

	keys := &keyspaces{opening: r.store, storage: r.storage, prefix: r.Config.Store.Prefix, runtimeDir: r.runtimeDir,
		callers: r.callers, limited: routing.limited}
	r.undo.add("keys of stages", keys.close)
	if err := process.AdoptOrphans(ctx); err != nil {
		r.logs.host.Warn("processes that stages leave behind are not known as theirs", "error", err)
	}
	r.undo.add("processes left behind", process.EndOrphans)
	groups := &cgroups{name: r.cgroup, log: r.logs.host}
	r.undo.add("groups of processes", groups.close)
	r.notifier = newNotifier(r.Systemd, r.logs.host, &r.faults)
	r.stages, err = supervisor.New(r.callers, supervisor.Options{
		Chain: r.specs, Cgroups: groups.open, Hidden: func() []string { return declared.HiddenFiles(r.reloader.config()) },
		Machine: sync.OnceValue(func() *isolation.Machine {
			m := isolation.Detect(ctx)
			m.Users = r.callers.Users()
			return m
		}),
		DataDir: r.storage.Dir, RuntimeDir: r.runtimeDir, Flags: r.flags.List(), OwnStore: keys.flags, HostSocket: sockets.use,
		Server: supervisor.Server{
			Version: r.front.Version(), ExternalURL: r.front.ExternalURL(), HistoryRevision: r.storage.Revisions.Past,
		},
		HoldTimeout: r.Config.HoldTimeout, Log: r.logs.host, StageLog: r.logs.stage,
		Publish: r.chain.publish, AwaitEmpty: r.chain.relay.AwaitEmpty, HostPaths: r.front.OwnPaths,
		ResourceSizes: r.chain.resourceSizes, Events: r.event, Approve: r.approve,
		Admit: func(ctx context.Context, m supervisor.Move) error { return r.trials.Admit(ctx, m) },
	})
	if err != nil {
		return err
	}
	r.trials = &trial.Trials{
		Releases: &trial.Releases{
			Front: r.front, Stages: r.stages, Published: r.chain.stages, Prefix: r.Config.Store.Prefix, Storage: r.storage,
		},
		Config: func() *config.Config { return r.reloader.config() },
		Flags:  r.flags, Tap: tap, RuntimeDir: r.runtimeDir, MayRead: r.callers.AdmitRegistry,
		Serving: &r.chain.serving, Log: r.logs.host, Panicked: r.logs.panicked,
	}
	r.undo.add("stages", r.stages.Stop)
	go r.notifier.reportStatus(r.ended)
	routing.stages, r.shutdown.stages, r.notifier.stages = r.stages, r.stages, r.stages
	r.shutdown.relay = r.chain.relay
	sockets.serve()
	go r.shutdown.endByForce(r.ended, r.logs.host)
	r.front.Metrics().SetSupervision(front.Supervision{
		States: supervisor.States(), Stages: r.stageStates, Loads: r.chain.relay.Loads,
		Faults: func() []front.FaultState { return faultStates(r.faults.List(r.stages.Status(), nil)) },
	})
	return nil
}

// approve goes by the lock file as it is by then.
func (r *run) approve(stage, binary string, c process.Contents) error {
	return declared.CheckLock(r.Config, stage, binary, c)
}

// startStages brings the chain up and prints a line for each stage. The stages are launched while the store opens; if
// that fails, it is why the start has failed.
func (r *run) startStages(ctx context.Context) error {
	r.background(ctx, func(context.Context) { r.shutdown.followStore(r.store, r.ended, r.end, r.logs.host) })
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var openErr error
	opened := make(chan struct{})
	go func() {
		defer close(opened)
		openErr = panics.Call(func() error {
			if _, err := r.store.Await(); err != nil {
				return err
			}
			return r.checkKeys(ctx)
		})
		if openErr != nil {
			cancel() // what is being launched
		}
	}()
	open := func() error {
		<-opened
		return openErr
	}
	err := r.stages.Start(ctx, open, func(stage, version string, pid int, took time.Duration) {
		r.front.Metrics().ObserveStart(stage, took)
		fmt.Fprintf(r.Out, "stage %-12s %-10s pid %-8d up after %s\n", stage, version, pid, took.Round(time.Millisecond))
	})
	if ctx.Err() != nil {
		err = cmp.Or(open(), err)
	}
	return problems.Locate(r.Config, err)
}

// registerStages makes the stages' hooks, checks and signals part of the front.
func (r *run) registerStages() error {
	if err := r.front.AddSignal("catena-stages", r.stages.Complete()); err != nil {
		return err
	}
	r.front.SetChecks(r.checks)
	err := r.front.AddPostStartHook("catena-stages", func(context.Context) error {
		r.stages.RunPostStartHooks(r.front.Fail)
		return nil
	})
	if err != nil {
		return err
	}
	r.front.AddPreShutdownHook(func() error {
		return r.faults.Cause(r.stages.RunPreShutdownHooks(context.Background(), r.Config.PreShutdownTimeout))
	})
	r.shutdown.drainStages()
	return nil
}
