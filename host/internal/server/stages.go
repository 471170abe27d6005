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
	"github.com/catena-dev/catena/host/internal/datadir"
	"github.com/catena-dev/catena/host/internal/declared"
	"github.com/catena-dev/catena/host/internal/front"
	"github.com/catena-dev/catena/host/internal/isolation"
	"github.com/catena-dev/catena/host/internal/leaders"
	"github.com/catena-dev/catena/host/internal/lifecycle"
	"github.com/catena-dev/catena/host/internal/panics"
	"github.com/catena-dev/catena/host/internal/problems"
	"github.com/catena-dev/catena/host/internal/process"
	"github.com/catena-dev/catena/host/internal/relay"
	"github.com/catena-dev/catena/host/internal/supervisor"
	"github.com/catena-dev/catena/host/internal/traffic"
)

// buildChain makes the supervisor with all that its stages ask the host for, and the relay.
func (r *run) buildChain(ctx context.Context, specs []supervisor.Spec) error {
	claims := datadir.OpenClaims(r.data.storage.Dir, r.logs.host)
	r.undo.add("claims file", claims.Close)
	limits := &limits{metrics: r.front.Metrics(), log: r.logs.host}
	sockets := &stageSockets{
		dir: r.data.runtimeDir, callers: r.data.callers, limits: limits, errorLog: r.logs.serverErrors(),
	}
	r.undo.add("sockets of stages", sockets.close)
	if err := r.supervise(ctx, specs, sockets, limits); err != nil {
		return err
	}
	recorder, err := newRecorder(r.Config, r.front)
	if err != nil {
		return err
	}
	r.journal = newJournal(r.logs.host, r.front.Metrics(), r.Systemd, r.stages, recorder)
	go r.journal.notifier.reportStatus(r.life.over)
	level, err := newLevel(r.front, r.logs.host)
	if err != nil {
		return err
	}
	routing := &routing{
		front: r.front, stages: r.stages, traffic: traffic.New(), log: r.logs.host, limits: limits, level: level,
		followers: config.BuiltinStages(),
	}
	relayed := relay.NewChain(relay.Config{
		Dial: dialStage, NotFound: http.HandlerFunc(routing.notFound), Error: routing.stageError,
		Propagator: r.front.Propagator(), Observe: routing.observe,
		System: front.IsSystemRequest, User: front.UserName, Limited: limits.limited, Watch: front.IsWatch,
		Watches: r.live.watchMode, Hold: relay.Limits{Requests: int(r.Config.HoldRequests)},
	})
	r.undo.add("relay", func() error {
		relayed.Close()
		return nil
	})
	r.chain = &chainState{
		front: r.front, relay: relayed, claims: claims, faults: &r.journal.faults, traffic: routing.traffic,
		void: make(chan struct{}, 1),
	}
	r.background(ctx, func(ctx context.Context) { makeLevel(ctx, level, r.chain) })
	leads := leaders.New(r.Config.Store.Prefix, func() (*clientv3.Client, error) {
		if _, err := r.data.store.Await(); err != nil {
			return nil, err
		}
		return r.data.storage.Connect()
	})
	r.undo.add("leaders", leads.Close)
	sockets.serve(&relay.HostHandler{
		Chain: relayed, API: r.front.Handler(), Caller: routing.caller, As: routing.as,
		Authorize: r.front.AuthorizeRewritten, Again: r.front.AuditAgain, Refuse: routing.refuse,
		Initialized: front.WatchInitialized, Lead: leads.Serve,
	})
	r.shutdown = &shutdown{
		front: r.front, stages: r.stages, relay: relayed, force: r.Force, lost: make(chan struct{}),
	}
	go r.shutdown.endByForce(r.life.over, r.logs.host)
	r.front.Metrics().SetSupervision(front.Supervision{
		States: supervisor.States(), Loads: relayed.Loads,
		Stages: func() []front.StageState { return stageStates(r.stages) },
		Faults: func() []front.FaultState { return faultStates(r.journal.faults.List(r.stages.Status(), nil)) },
	})
	r.undo.add("stages", r.stages.Stop)
	return nil
}

// supervise makes the supervisor, which starts nothing yet.
func (r *run) supervise(
	ctx context.Context, specs []supervisor.Spec, sockets *stageSockets, limits *limits,
) (err error) {
	keys := &keyspaces{
		opening: r.data.store, storage: r.data.storage, prefix: r.Config.Store.Prefix, runtimeDir: r.data.runtimeDir,
		callers: r.data.callers, limits: limits,
	}
	r.undo.add("keys of stages", keys.close)
	if err := process.AdoptOrphans(ctx); err != nil {
		r.logs.host.Warn("processes that stages leave behind are not known as theirs", "error", err)
	}
	r.undo.add("processes left behind", process.EndOrphans)
	groups := &cgroups{name: r.data.cgroup, log: r.logs.host}
	r.undo.add("groups of processes", groups.close)
	r.stages, err = supervisor.New(r.data.callers, supervisor.Options{
		Chain: specs, Cgroups: groups.open, Hidden: func() []string { return declared.HiddenFiles(r.live.config()) },
		Machine: sync.OnceValue(func() *isolation.Machine {
			m := isolation.Detect(ctx)
			m.Users = r.data.callers.Users()
			return m
		}),
		DataDir: r.data.storage.Dir, RuntimeDir: r.data.runtimeDir, Flags: r.flags.List(), OwnStore: keys.flags,
		HostSocket: sockets.use,
		Server: supervisor.Server{
			Version: r.front.Version(), ExternalURL: r.front.ExternalURL(),
			HistoryRevision: r.data.storage.Revisions.Past,
		},
		HoldTimeout: r.Config.HoldTimeout, Log: r.logs.host, StageLog: r.logs.stage, HostPaths: r.front.OwnPaths,
		Approve: func(stage, binary string, c process.Contents) error { // by the lock file as it is by then
			return declared.CheckLock(r.Config, stage, binary, c)
		},
	})
	return err
}

// startStages brings the chain up and prints a line for each stage. The stages are launched while the store opens; if
// that fails, it is why the start has failed.
func (r *run) startStages(ctx context.Context) error {
	r.background(ctx, func(context.Context) { r.shutdown.followStore(r.data.store, r.life, r.logs.host) })
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var openErr error
	opened := make(chan struct{})
	go func() {
		defer close(opened)
		openErr = panics.Call(func() error {
			if _, err := r.data.store.Await(); err != nil {
				return err
			}
			return r.keys().check(ctx)
		})
		if openErr != nil {
			cancel() // what is being launched
		}
	}()
	open := func() error {
		<-opened
		return openErr
	}
	outlet := supervisor.Outlet{
		Publish: r.chain.publish, AwaitEmpty: r.chain.relay.AwaitEmpty, ResourceSizes: r.chain.resourceSizes,
		Admit: r.commands.Admit,
		Events: func(e supervisor.Event) {
			r.journal.stage(e)
			r.commands.StageChanged(e)
		},
	}
	err := r.stages.Start(ctx, outlet, open, func(stage, version string, pid int, took time.Duration) {
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
	r.front.SetChecks(func() []lifecycle.Check { return checks(r.stages) })
	err := r.front.AddPostStartHook("catena-stages", func(context.Context) error {
		r.stages.RunPostStartHooks(r.front.Fail)
		return nil
	})
	if err != nil {
		return err
	}
	r.front.AddPreShutdownHook(func() error {
		return r.journal.faults.Cause(r.stages.RunPreShutdownHooks(context.Background(), r.Config.PreShutdownTimeout))
	})
	r.shutdown.drainStages()
	return nil
}
