// Package supervisor keeps one process of every stage of the chain running: it
// launches them, takes them through their lifecycle in the order of the chain,
// publishes what they claim to the relay, restarts those that die, and ends them
// all. It decides nothing about requests.
package supervisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/catena-dev/catena/host/internal/lifecycle"
	"github.com/catena-dev/catena/host/internal/process"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// Options say what the supervisor needs of the host.
type Options struct {
	// Chain are the stages from head to tail.
	Chain []Spec
	// DataDir is the folder in which each stage gets one of its own; RuntimeDir
	// is the folder for sockets.
	DataDir, RuntimeDir string
	// Flags of the API server, as name=value.
	Flags []string
	// HostSocket is the path of the Unix socket on which stages call the host.
	HostSocket string
	// ServerVersion and ExternalURL are told to the stages.
	ServerVersion, ExternalURL string
	// Publish is called with the whole chain, from head to tail, whenever what
	// the relay has to know of it has changed. Calls come one at a time.
	Publish func([]Published)
	// ResourceSizes is called with the sizes of stored resources that a stage
	// reports.
	ResourceSizes func([]*stagev1.ResourceSize)
	// Log gets what the supervisor has to say, StageLog what the stages log.
	Log, StageLog hclog.Logger
}

// Published is what the relay has to know of a stage.
type Published struct {
	Name   string
	Socket string
	Claims []*stagev1.Claim
	// Paths are for the index at /.
	Paths []string
}

// Supervisor is the set of stages at run time. Make one with New, then call
// Start, RunPostStartHooks, RunPreShutdownHooks, Drain and Stop, in this order
// and each at most once; Stop is due also when Start failed.
type Supervisor struct {
	opts   Options
	stages []*stage // head to tail
	log    hclog.Logger

	// background ends with Stop; running counts what runs under it.
	background context.Context
	cancel     context.CancelFunc
	running    sync.WaitGroup

	publishing sync.Mutex

	mu       sync.Mutex
	tokens   map[string]Identity
	stopping bool
	// hooksDue says that the server's start has come to the post-start hooks, so
	// that a generation which is prepared from now on runs its own.
	hooksDue bool
}

// Identity is who calls the host with a generation's token.
type Identity struct {
	Stage, Generation string
	User              string
	Groups            []string
}

// New makes the folders and the sockets of the stages and starts nothing.
func New(opts Options) (*Supervisor, error) {
	s := &Supervisor{opts: opts, log: opts.Log, tokens: map[string]Identity{}}
	s.background, s.cancel = context.WithCancel(context.Background())
	for _, spec := range opts.Chain {
		dir := filepath.Join(opts.DataDir, "stages", spec.Name)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, errors.Join(fmt.Errorf("data folder of stage %q: %w", spec.Name, err), s.closeListeners())
		}
		l, err := process.NewListener(opts.RuntimeDir, spec.Name, "0")
		if err != nil {
			return nil, errors.Join(err, s.closeListeners())
		}
		s.stages = append(s.stages, &stage{
			spec: spec, opts: &s.opts, log: opts.Log.With("stage", spec.Name), output: opts.StageLog.Named(spec.Name), listener: l, dataDir: dir,
		})
	}
	return s, nil
}

// Start launches all stages in parallel, then configures them from the tail to
// the head and prepares them in the same order. It reports each stage that is
// ready to serve to up. An error names the stage; what was started keeps running
// until Stop.
func (s *Supervisor) Start(ctx context.Context, up func(stage, version string, pid int, took time.Duration)) error {
	started := time.Now()
	if err := s.launchAll(ctx); err != nil {
		return err
	}
	links := make([]lifecycle.Link[report], len(s.stages))
	for i, st := range s.stages {
		links[i] = st
	}
	if err := lifecycle.Build(ctx, links); err != nil {
		return err
	}
	for i := len(s.stages) - 1; i >= 0; i-- {
		st := s.stages[i]
		g := st.generation()
		st.signals = map[string]chan struct{}{}
		for _, name := range g.prepared.GetMuxAndDiscoverySignals() {
			st.signals[name] = make(chan struct{})
		}
		if err := s.serve(g); err != nil {
			return err
		}
		up(st.spec.Name, g.proc.Description().GetVersion(), g.proc.PID(), time.Since(started))
	}
	s.publish()
	return nil
}

func (s *Supervisor) launchAll(ctx context.Context) error {
	errs := make([]error, len(s.stages))
	var wg sync.WaitGroup
	for i, st := range s.stages {
		wg.Go(func() {
			g, err := st.launch(ctx)
			if err != nil {
				errs[i] = err
				return
			}
			s.admit(g)
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// serve makes a prepared generation the one that the host relays to, and keeps
// watch over it.
func (s *Supervisor) serve(g *generation) error {
	select {
	case <-g.proc.Done():
		return g.proc.Err()
	default:
	}
	if err := g.machine.To(lifecycle.Serving, ""); err != nil {
		return err
	}
	s.running.Go(func() { g.watch(s.background, s.event) })
	s.running.Go(func() { s.supervise(g) })
	return nil
}

// event takes in one change that a stage reports.
func (s *Supervisor) event(g *generation, e *stagev1.Event) {
	st := g.stage
	if st.generation() != g {
		return
	}
	if c := e.GetClaimsChanged(); c != nil {
		st.setReport(report{paths: c.GetListedPaths(), claims: c.GetClaims()})
		s.publish()
	}
	st.signaled(e.GetSignaled())
	if sizes := e.GetResourceSizes(); len(sizes) > 0 && s.opts.ResourceSizes != nil {
		s.opts.ResourceSizes(sizes)
	}
}

func (s *Supervisor) publish() {
	s.publishing.Lock()
	defer s.publishing.Unlock()
	chain := make([]Published, len(s.stages))
	for i, st := range s.stages {
		r := st.reported()
		chain[i] = Published{Name: st.spec.Name, Socket: st.listener.Path(), Claims: r.claims, Paths: r.paths}
	}
	s.opts.Publish(chain)
}

// admit makes a generation's token good for calls to the host.
func (s *Supervisor) admit(g *generation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tokens[g.token] = Identity{
		Stage: g.stage.spec.Name, Generation: g.id, User: g.stage.spec.User, Groups: g.stage.spec.Groups,
	}
}

func (s *Supervisor) revoke(g *generation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.tokens, g.token)
}

// Authenticate returns who calls the host with that token.
func (s *Supervisor) Authenticate(token string) (Identity, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id, ok := s.tokens[token]
	return id, ok
}

// Signals returns the mux-and-discovery signals of all stages as STAGE/SIGNAL.
// It is complete once Start has returned.
func (s *Supervisor) Signals() map[string]<-chan struct{} {
	all := map[string]<-chan struct{}{}
	for _, st := range s.stages {
		for name, ch := range st.signals {
			all[st.spec.Name+"/"+name] = ch
		}
	}
	return all
}

// Checks returns the health checks of all stages: those that the stages report
// and, for each post-start hook, whether it has returned. It is complete once
// Start has returned.
func (s *Supervisor) Checks() []Check {
	var checks []Check
	for _, st := range s.stages {
		p := st.generation().prepared
		hooks := map[string]bool{}
		for _, hook := range p.GetPostStartHooks() {
			name := "poststarthook/" + hook
			hooks[name] = true
			checks = append(checks, Check{
				Name: st.spec.Name + "/" + name, Healthz: true, Livez: true, Readyz: true,
				Run: func(context.Context) error { return st.generation().hooks.check(hook) },
			})
		}
		for _, c := range p.GetHealthChecks() {
			if hooks[c.GetName()] {
				continue
			}
			checks = append(checks, Check{
				Name: st.spec.Name + "/" + c.GetName(), Healthz: c.GetHealthz(), Livez: c.GetLivez(), Readyz: c.GetReadyz(),
				Run: func(ctx context.Context) error { return st.check(ctx, c.GetName()) },
			})
		}
	}
	return checks
}

// check runs a health check on the current generation, if there is one that
// serves.
func (s *stage) check(ctx context.Context, name string) error {
	g := s.generation()
	if state := g.machine.State(); state != lifecycle.Serving && state != lifecycle.Draining {
		return fmt.Errorf("stage %q is %s", s.spec.Name, state)
	}
	return g.check(ctx, name)
}

func (s *Supervisor) closeListeners() error {
	var errs []error
	for _, st := range s.stages {
		errs = append(errs, st.listener.Close())
	}
	return errors.Join(errs...)
}
