package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/catena-dev/catena/host/internal/config"
	"github.com/catena-dev/catena/host/internal/front"
	"github.com/catena-dev/catena/host/internal/pki"
	"github.com/catena-dev/catena/host/internal/relay"
	"github.com/catena-dev/catena/host/internal/store"
	"github.com/catena-dev/catena/host/internal/supervisor"
	"github.com/catena-dev/catena/sdk/klogr"
)

// server is one run of the host. What is opened is registered in undo at once, so
// that an error at any step, as well as a planned end, closes it in reverse order.
type server struct {
	cfg     *config.Config // that of the start; see config
	load    func() (*config.Config, error)
	attach  attachments
	out     io.Writer
	log     hclog.Logger
	others  hclog.Logger // see newLogger
	started time.Time
	undo    closers

	specs   []supervisor.Spec
	run     string // the runtime folder
	lock    *store.DirLock
	storage store.Options
	store   *store.Store
	flags   *front.Flags
	pki     *pki.PKI
	front   *front.Front
	chain   *relay.Chain
	stages  *supervisor.Supervisor
	// saved are the claims as they stand in claimsFile, for publish alone.
	saved    map[string][]string
	drained  chan struct{} // closed when the stages have been drained
	endDrain func()        // ends the drain before that
	ran      bool          // the front has been run, and so has closed itself
	hangup   chan os.Signal
	// force is closed when the server is to end without regard to requests.
	force <-chan struct{}
	// published is what the stages have last reported.
	published atomic.Pointer[[]supervisor.Published]
	// over is closed when serve returns.
	over chan struct{}

	present    atomic.Pointer[config.Config]
	lastReload atomic.Pointer[reloaded]
	reloading  sync.Mutex
	// serving says that the chain is up, so that it can be changed.
	serving atomic.Bool

	mu      sync.Mutex
	signals []lifecycleSignal
}

// serve runs the server until ctx ends, or until something fails that it cannot
// do without. Mistakes of the operator are found before anything is started. When force
// is closed, it ends without regard to requests. Load reads the configuration anew.
func serve(ctx context.Context, force <-chan struct{}, cfg *config.Config, load func() (*config.Config, error), attach attachments, out io.Writer) (err error) {
	log, others := newLogger(cfg.Log)
	s := &server{cfg: cfg, load: load, attach: attach, out: out, log: log, others: others, force: force, started: time.Now()}
	s.over = make(chan struct{})
	defer close(s.over)
	s.present.Store(cfg)
	defer func() { err = errors.Join(err, s.undo.close()) }()
	s.hangup = make(chan os.Signal, 1)
	signal.Notify(s.hangup, syscall.SIGHUP)
	for _, step := range []func(context.Context) error{
		s.findBinaries, s.openData, s.parseFlags, s.openFront, s.openStore, s.buildChain, s.openAdmin, s.startStages,
	} {
		if err := step(ctx); err != nil {
			if errors.Is(context.Cause(ctx), errSignal) {
				return nil // asked to end during the start
			}
			return err
		}
	}
	return s.serve(ctx)
}

// openData takes the data folder for this process and makes the one for sockets.
func (s *server) openData(context.Context) error {
	dir, err := filepath.Abs(s.cfg.DataDir)
	if err != nil {
		return fmt.Errorf("dataDir: %w", err)
	}
	if s.lock, err = store.LockDir(dir); err != nil {
		return err
	}
	s.undo.add(s.lock.Release)
	if s.lock.WasOpen {
		s.log.Warn("the data folder was open to other users of this machine; it is closed to them now", "dir", dir)
	}
	if s.lock.Replaceable != nil {
		s.log.Warn("other users of this machine could put another folder in the place of the data folder", "error", s.lock.Replaceable)
	}
	if s.run, err = runtimeDir(s.cfg.RuntimeDir, dir, s.cfg.Order); err != nil {
		return err
	}
	s.storage = storeOptions(s.cfg, dir, s.run)
	s.storage.Lock, s.storage.Logger = s.lock, s.others.Named("etcd")
	return nil
}

func storeOptions(cfg *config.Config, dir, run string) store.Options {
	c := cfg.Store
	return store.Options{
		Dir: dir, Socket: filepath.Join(run, "etcd.sock"), QuotaBytes: c.QuotaBytes,
		Endpoints: c.Endpoints, CAFile: c.CAFile, CertFile: c.CertFile, KeyFile: c.KeyFile,
	}
}

// flagDefaults are kube-apiserver's flags as this server sets them if the operator
// does not.
func flagDefaults(cfg *config.Config, storage store.Options) []front.Default {
	defaults := front.Defaults(pki.FilesIn(pkiDir(storage.Dir)))
	own := storage.Flags()
	own["etcd-prefix"] = cfg.Store.Prefix
	own["etcd-compaction-interval"] = cfg.Store.CompactionInterval.String()
	for _, name := range slices.Sorted(maps.Keys(own)) {
		defaults = append(defaults, front.Default{Flags: []string{name + "=" + own[name]}})
	}
	return defaults
}

// parseFlags completes kube-apiserver's flags, for the front and all stages, and
// makes the certificates and keys that they name.
func (s *server) parseFlags(ctx context.Context) error {
	var err error
	if s.flags, err = front.ParseFlags(ctx, s.cfg.APIServer, flagDefaults(s.cfg, s.storage)...); err != nil {
		return listProblems(located(s.cfg, err))
	}
	if err := klogr.Install(s.others.Named("front"), s.flags.Value("v"), s.flags.Value("vmodule")); err != nil {
		return err
	}
	for _, warning := range s.flags.Deprecated() {
		s.log.Warn(warning)
	}
	if err := s.flags.Validate(ctx); err != nil {
		return listProblems(located(s.cfg, err))
	}
	s.pki, err = pki.Ensure(s.pkiOptions())
	return err
}

func (s *server) pkiOptions() pki.Options {
	return pki.Options{Dir: pkiDir(s.storage.Dir), Hosts: s.flags.Hosts()}
}

// renewal is how often certificates are looked at that may have to be renewed.
// Servers and clients read them anew when their files change.
const renewal = 12 * time.Hour

func (s *server) renewCertificates(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(renewal):
		}
		if _, err := pki.Ensure(s.pkiOptions()); err != nil {
			s.log.Error("certificates could not be renewed", "error", err)
		}
	}
}

// openFront binds the port, so that one that is in use is found before the
// stages start.
func (s *server) openFront(ctx context.Context) error {
	var err error
	s.front, err = front.New(ctx, front.Options{Flags: s.flags, ListedPaths: s.listedPaths, Metrics: s.metrics, Signal: s.signaled, Log: s.log.Named("front")})
	if err != nil {
		return listProblems(located(s.cfg, err))
	}
	s.front.HandleChain(http.HandlerFunc(s.serveChain))
	s.undo.add(func() error {
		if s.ran {
			return nil
		}
		return s.front.Close()
	})
	return nil
}

func (s *server) openStore(ctx context.Context) error {
	var err error
	if s.store, err = store.Open(ctx, s.storage); err != nil {
		return err
	}
	s.undo.add(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), storeCloseTimeout)
		defer cancel()
		return s.store.Close(ctx)
	})
	return nil
}

// storeCloseTimeout bounds the end of the embedded etcd.
const storeCloseTimeout = 10 * time.Second

// serve lets requests in, runs the stages' hooks and, when ctx ends, shuts down in
// upstream's order.
func (s *server) serve(ctx context.Context) error {
	if err := s.registerStages(); err != nil {
		return err
	}
	go func() {
		select {
		case err := <-s.store.Failed():
			s.front.Fail(fmt.Errorf("store: %w", err))
		case <-ctx.Done():
		}
	}()
	go s.announce(ctx)
	front.ObserveConfig(s.started)
	s.serving.Store(true)
	go s.reloadOnHangup(ctx)
	go s.watchPlugins(ctx)
	go s.renewCertificates(ctx)
	s.log.Info("serving", "address", s.front.Addr().String())
	s.ran = true
	err := s.runFront(ctx)
	s.awaitDrain()
	s.log.Info("no longer serving", "address", s.front.Addr().String())
	return err
}

func (s *server) listedPaths() []string {
	var paths []string
	if p := s.published.Load(); p != nil {
		for _, st := range *p {
			paths = append(paths, st.Paths...)
		}
	}
	return paths
}
