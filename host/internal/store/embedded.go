package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3election"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3election/v3electionpb"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3lock"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3lock/v3lockpb"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3rpc"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"github.com/catena-dev/catena/host/internal/connlimit"
	"github.com/catena-dev/catena/host/internal/guard"
	"github.com/catena-dev/catena/host/internal/panics"
	"github.com/catena-dev/catena/host/internal/store/etcdfiles"
)

// maxSocketPath is the longest path of a Unix socket on Linux, in bytes.
const maxSocketPath = 107

// history is how long etcd keeps old revisions if no stage compacts it. Stages with
// kube-apiserver's storage compact far more often (--etcd-compaction-interval).
const history = "1h"

// embedded is an etcd server in this process.
type embedded struct {
	etcd *embed.Etcd
	grpc *grpc.Server
	// unwatch ends the goroutine that waits for the server to fail.
	unwatch context.CancelFunc
	// ending is set when errors of etcd are no longer worth a line in the log.
	ending *atomic.Bool
}

// startEmbedded returns when the server responds. Thereafter it calls failed if the
// server ends by itself.
func startEmbedded(ctx context.Context, dir string, o Options, failed func(error)) (*embedded, error) {
	if err := checkSocket(o.Socket); err != nil {
		return nil, err
	}
	if err := makeDir(dir); err != nil {
		return nil, err
	}
	applied, err := etcdfiles.Check(dir)
	if err != nil {
		return nil, damaged(o.Dir, err)
	}
	fatal := make(chan error, 1)
	started, ending := new(atomic.Bool), new(atomic.Bool)
	cfg := embeddedConfig(dir, o)
	isEnding := func() bool { return ending.Load() || !started.Load() && ctx.Err() != nil }
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(newZap(o.Logger, isEnding, func(err error) {
		select {
		case fatal <- err:
		default:
		}
	}))
	etcd, err := startEtcd(ctx, cfg, applied, fatal)
	if err != nil && applied > 0 && ctx.Err() == nil {
		err = damaged(o.Dir, err)
	}
	if err != nil {
		return nil, err
	}
	unserved := make(chan error, 1)
	clients, err := serveClients(etcd, o, unserved)
	if err != nil {
		etcd.Close()
		return nil, err
	}
	started.Store(true)
	watch, cancel := context.WithCancel(context.Background())
	go reportFailure(watch, etcd, fatal, unserved, func(err error) {
		ending.Store(true) // what etcd logs from now on has this cause
		failed(err)
	})
	return &embedded{etcd: etcd, grpc: clients, unwatch: cancel, ending: ending}, nil
}

// streamWorkers are the goroutines that serve requests one after the other. Etcd's own listener has none, so that each
// request begins with a small stack, which is copied again and again on the way down to the index of the keys. The
// streams of watches keep some of the workers; what comes when all are busy gets a goroutine of its own.
const streamWorkers = 256

// serveClients serves the member's API on its socket, with the services and options of etcd's own listener, which admits every process
// that the mode of the socket lets in, as many times as it likes. What ends the service before Stop is sent to unserved.
func serveClients(etcd *embed.Etcd, o Options, unserved chan<- error) (*grpc.Server, error) {
	admit := o.Admit
	if admit == nil {
		admit = guard.Own
	}
	if err := removeSocket(o.Socket); err != nil {
		return nil, err
	}
	l, err := guard.ListenFor(o.Socket, admit)
	if err != nil {
		return nil, err
	}
	// kube-apiserver has a connection for each resource, most of them idle: they need no 32 KiB to read into.
	opts := append(keepaliveOptions(etcd.Config()), grpc.ReadBufferSize(4<<10), grpc.NumStreamWorkers(streamWorkers))
	server := v3rpc.Server(etcd.Server, nil, nil, append(opts, localReads()...)...)
	own := v3client.New(etcd.Server)
	v3electionpb.RegisterElectionServer(server, v3election.NewElectionServer(own))
	v3lockpb.RegisterLockServer(server, v3lock.NewLockServer(own))
	go func() {
		if err := server.Serve(connlimit.New(l, connlimit.Options{Share: connlimit.Stages})); err != nil {
			unserved <- fmt.Errorf("serve %s: %w", o.Socket, err)
		}
	}()
	return server, nil
}

// removeSocket removes a socket, and nothing else that has its path.
func removeSocket(path string) error {
	if info, err := os.Lstat(path); err != nil || info.Mode()&fs.ModeSocket == 0 {
		return nil // listening says what is wrong
	}
	return os.Remove(path)
}

// keepaliveOptions returns how a server of etcd finds connections whose clients are gone, and how often it lets clients
// ask for that. gRPC's own default ends the connections of those that ask more than once in five minutes; Kubernetes'
// clients of etcd ask every 30 seconds.
func keepaliveOptions(cfg embed.Config) []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: cfg.GRPCKeepAliveMinTime}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: cfg.GRPCKeepAliveInterval, Timeout: cfg.GRPCKeepAliveTimeout}),
	}
}

// embeddedConfig returns the configuration of a single member that listens nowhere by itself: etcd would open a unix peer URL as an
// abstract socket, which every local user can connect to. See serveClients for its clients.
func embeddedConfig(dir string, o Options) *embed.Config {
	client := url.URL{Scheme: "unix", Path: o.Socket} // which etcd tells its clients, and does not listen on
	cfg := embed.NewConfig()
	cfg.Name = "catena"
	cfg.Dir = dir
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	cfg.ListenPeerUrls = nil
	cfg.ListenClientUrls = nil
	cfg.AdvertiseClientUrls = []url.URL{client}
	cfg.EnableGRPCGateway = false
	// A single member waits for no other: its election is over after one to five ticks. Shorter ones cost an idle server wakeups.
	cfg.ElectionMs = 500
	cfg.QuotaBackendBytes = o.QuotaBytes
	if o.Ephemeral {
		cfg.UnsafeNoFsync = true
		wal.SegmentSizeBytes = ephemeralSegment
	}
	cfg.AutoCompactionMode = embed.CompactorModePeriodic
	cfg.AutoCompactionRetention = history
	return cfg
}

// ephemeralSegment is what etcd's log takes in advance for a segment of it, where that is of no use. It takes two.
const ephemeralSegment = 1 << 20

// checkSocket checks that the socket can be made, and that other users cannot reach it.
func checkSocket(path string) error {
	if !filepath.IsAbs(path) {
		return fmt.Errorf("socket path %q is not absolute", path)
	}
	if len(path) > maxSocketPath {
		return fmt.Errorf("socket path %s has %d bytes, the system allows %d", path, len(path), maxSocketPath)
	}
	info, err := os.Stat(filepath.Dir(path))
	if err != nil {
		return fmt.Errorf("directory of the socket: %w", err)
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return fmt.Errorf("directory of the socket %s is open to other users: mode %04o, want 0700", path, mode)
	}
	return nil
}

// startEtcd starts etcd in a goroutine of its own, because etcd's fatal errors
// end the goroutine. applied is the last entry that its database has.
func startEtcd(ctx context.Context, cfg *embed.Config, applied uint64, fatal <-chan error) (*embed.Etcd, error) {
	type result struct {
		etcd *embed.Etcd
		err  error
	}
	started := make(chan result, 1)
	go func() {
		var r result
		r.err = panics.Call(func() (err error) { // it panics if a file is empty
			r.etcd, err = embed.StartEtcd(cfg)
			return err
		})
		started <- r
	}()
	select {
	case err := <-fatal:
		return nil, err
	case r := <-started:
		if r.err != nil {
			return nil, r.err
		}
		return awaitReady(ctx, r.etcd, applied, fatal)
	}
}

// awaitReady returns when the member leads its cluster of one.
func awaitReady(ctx context.Context, etcd *embed.Etcd, applied uint64, fatal <-chan error) (*embed.Etcd, error) {
	began, look := time.Now(), time.NewTicker(logCheck)
	defer look.Stop()
	for {
		select {
		case <-etcd.Server.ReadyNotify():
			return etcd, nil
		case err := <-fatal:
			return nil, err // a server that has lost a goroutine cannot be closed
		case err := <-etcd.Err():
			etcd.Close()
			return nil, err
		case <-look.C:
			if err := checkLog(etcd.Config().Dir, applied, time.Since(began)); err != nil {
				etcd.Close()
				return nil, err
			}
		case <-ctx.Done():
			etcd.Close()
			return nil, context.Cause(ctx)
		}
	}
}

// reportFailure calls failed if the server ends before ctx does.
func reportFailure(ctx context.Context, etcd *embed.Etcd, fatal, unserved <-chan error, failed func(error)) {
	var err error
	select {
	case <-ctx.Done():
		return
	case err = <-fatal:
	case err = <-unserved:
	case err = <-etcd.Err():
	case <-etcd.Server.StopNotify():
		err = errors.New("the server has stopped")
	}
	if ctx.Err() == nil {
		failed(fmt.Errorf("embedded etcd: %w", err))
	}
}

// close ends the server, or stops waiting for that when ctx ends.
func (e *embedded) close(ctx context.Context) error {
	e.unwatch()
	e.ending.Store(true)
	done := make(chan struct{})
	go func() {
		e.grpc.Stop()
		e.etcd.Close()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
