package server

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/catena-dev/catena/host/internal/front"
	"github.com/catena-dev/catena/host/internal/guard"
	"github.com/catena-dev/catena/host/internal/isolation"
	"github.com/catena-dev/catena/host/internal/problems"
	"github.com/catena-dev/catena/host/internal/process"
	"github.com/catena-dev/catena/host/internal/relay"
	"github.com/catena-dev/catena/host/internal/supervisor"
)

// hostSocketName is the socket on which stages call the host.
const hostSocketName = "host.sock"

// maxStageHead is the limit of heads that stages get: one that hands a request on sends the same again.
const maxStageHead = 4 << 20

// buildChain makes the relay, the socket on which the stages call the host, and the
// supervisor.
func (r *run) buildChain(ctx context.Context) error {
	routing := &routing{front: r.front, log: r.logs.host, traffic: r.traffic}
	r.chain = &chainState{front: r.front, claims: newClaimsFile(r.storage.Dir, r.logs.host)}
	r.undo.add(r.chain.claims.close)
	r.chain.relay = relay.NewChain(relay.Config{
		NotFound: http.HandlerFunc(routing.notFound), Error: routing.stageError, Propagator: r.front.Propagator(), Observe: routing.observe,
		System: front.IsSystemRequest, User: front.UserName, Limited: routing.limited, Watch: front.IsWatch,
		Hold: relay.Limits{Requests: int(r.Config.HoldRequests)},
	})
	tapped := &tap{chain: r.chain.relay}
	r.shadows = newShadows(r.runtimeDir, tapped)
	r.front.SetChain(tapped)

	socket := filepath.Join(r.runtimeDir, hostSocketName)
	l, err := listenForStages(socket)
	if err != nil {
		return fmt.Errorf("socket for the stages: %w", err)
	}
	handler := &relay.HostHandler{Chain: r.chain.relay, API: r.front.Handler(), Caller: routing.caller, As: routing.as,
		Authorize: r.front.AuthorizeRewritten, Refuse: routing.refuse, Initialized: front.WatchInitialized}
	srv := &http.Server{Handler: handler, MaxHeaderBytes: maxStageHead, ConnContext: withPeer, ErrorLog: r.logs.host.StandardLogger(nil)}
	go func() { _ = srv.Serve(l) }()
	r.undo.add(srv.Close)

	keys := &keyspaces{storage: r.storage, prefix: r.Config.Store.Prefix, runtimeDir: r.runtimeDir}
	r.undo.add(keys.close)
	groups := &cgroups{name: r.cgroup, log: r.logs.host}
	r.undo.add(groups.close)
	r.notifier = newNotifier(r.Systemd, r.logs.host)
	r.stages, err = supervisor.New(supervisor.Options{
		Chain: r.specs, Cgroups: groups.open, Machine: sync.OnceValue(func() *isolation.Machine { return isolation.Detect(ctx) }),
		DataDir: r.storage.Dir, RuntimeDir: r.runtimeDir, Flags: r.flags.List(), OwnStore: keys.flags, HostSocket: socket,
		ServerVersion: r.front.Version(), ExternalURL: r.front.ExternalURL(), HoldTimeout: r.Config.HoldTimeout, Log: r.logs.host, StageLog: r.logs.stage,
		Publish: r.chain.publish, AwaitEmpty: r.chain.relay.AwaitEmpty, HostPaths: r.front.OwnPaths, ResourceSizes: r.chain.resourceSizes, Events: r.event, Approve: r.approve,
	})
	if err != nil {
		return err
	}
	r.undo.add(r.stages.Stop)
	go r.notifier.reportStatus(r.ended)
	routing.stages, r.shutdown.stages, r.notifier.stages = r.stages, r.stages, r.stages
	go r.shutdown.endByForce(r.ended, r.logs.host)
	r.front.Metrics().SetSupervision(front.Supervision{States: supervisor.States(), Stages: r.stageStates, Held: r.chain.heldRequests})
	return nil
}

// approve goes by the lock file as it is by then.
func (r *run) approve(stage, binary string, c process.Contents) error {
	return checkLock(r.Config, stage, binary, c)
}

// listenForStages opens the socket on which stages call the host. If this process runs as root,
// each isolated stage has a user of its own.
func listenForStages(path string) (net.Listener, error) {
	if os.Geteuid() == 0 {
		return guard.ListenFor(path, isolation.IsStageUser)
	}
	return guard.Listen(path)
}

// startStages brings the chain up and prints a line for each stage.
func (r *run) startStages(ctx context.Context) error {
	return problems.Locate(r.Config, r.stages.Start(ctx, func(stage, version string, pid int, took time.Duration) {
		r.front.Metrics().ObserveStart(stage, took)
		fmt.Fprintf(r.Out, "stage %-12s %-10s pid %-8d up after %s\n", stage, version, pid, took.Round(time.Millisecond))
	}))
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
		return r.stages.RunPreShutdownHooks(context.Background(), r.Config.PreShutdownTimeout)
	})
	r.shutdown.drainStages()
	return nil
}
