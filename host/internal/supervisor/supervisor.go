// Package supervisor keeps one process of every stage of the chain running: it
// launches them, takes them through their lifecycle in the order of the chain,
// publishes what they claim to the relay, restarts those that die or hang, swaps
// one generation for another, and ends them all. It decides nothing about requests.
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

// Supervisor is the set of stages at run time. Make one with New, then call
// Start, RunPostStartHooks, RunPreShutdownHooks, Drain and Stop, in this order
// and each at most once; Stop is due also when Start failed. Swap, Status and
// Authenticate can be called at any time between Start and Stop.
type Supervisor struct {
	opts   Options
	stages []*stage // head to tail
	log    hclog.Logger

	// background ends with Stop; running counts what runs under it.
	background context.Context
	cancel     context.CancelFunc
	running    sync.WaitGroup

	publishing sync.Mutex

	mu     sync.Mutex
	tokens map[string]*generation
	// live are the generations whose process has not been seen to end.
	live     map[*generation]bool
	stopping bool
	// hooksDue says that the server's start has come to the post-start hooks, so
	// that a generation which is prepared from now on runs its own.
	hooksDue bool
}

// New makes the folders of the stages and starts nothing.
func New(opts Options) (*Supervisor, error) {
	s := &Supervisor{opts: opts, log: opts.Log, tokens: map[string]*generation{}, live: map[*generation]bool{}}
	s.background, s.cancel = context.WithCancel(context.Background())
	for _, spec := range opts.Chain {
		dir := filepath.Join(opts.DataDir, "stages", spec.Name)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("data folder of stage %q: %w", spec.Name, err)
		}
		s.stages = append(s.stages, &stage{
			name: spec.Name, spec: spec, opts: &s.opts, log: opts.Log.With("stage", spec.Name), output: opts.StageLog.Named(spec.Name), dataDir: dir,
		})
	}
	return s, nil
}

// Start launches all stages in parallel, has them check their configurations, then
// configures them from the tail to the head and prepares them in the same order. A
// stage that is prepared is published, so that those in front of it can call it,
// and reported to up. An error names the stage; what was started keeps running
// until Stop.
func (s *Supervisor) Start(ctx context.Context, up func(stage, version string, pid int, took time.Duration)) error {
	started := time.Now()
	generations, err := s.launchAll(ctx)
	if err != nil {
		return err
	}
	if err := validateConfigs(ctx, generations); err != nil {
		return err
	}
	links := make([]lifecycle.Link[report], len(generations))
	for i, g := range generations {
		links[i] = firstStart{generation: g, supervisor: s, up: func() {
			up(g.Name(), g.proc.Description().GetVersion(), g.proc.PID(), time.Since(started))
		}}
	}
	return lifecycle.Build(ctx, links)
}

// firstStart is a generation that serves as soon as it is prepared.
type firstStart struct {
	*generation
	supervisor *Supervisor
	up         func()
}

// PrepareRun implements lifecycle.Link.
func (f firstStart) PrepareRun(ctx context.Context) error {
	if err := f.generation.PrepareRun(ctx); err != nil {
		return err
	}
	s := f.supervisor
	s.running.Go(func() { f.watch(s.background, s.event) })
	if _, err := s.serve(f.generation); err != nil {
		return err
	}
	s.publish()
	f.up()
	return nil
}

// validateConfigs has each stage check its own configuration, so that the mistakes
// in all of them are told at once, before any is configured.
func validateConfigs(ctx context.Context, generations []*generation) error {
	var errs []error
	for _, g := range generations {
		errs = append(errs, g.validateConfig(ctx))
	}
	return errors.Join(errs...)
}

func (s *Supervisor) launchAll(ctx context.Context) ([]*generation, error) {
	generations := make([]*generation, len(s.stages))
	errs := make([]error, len(s.stages))
	var wg sync.WaitGroup
	for i, st := range s.stages {
		wg.Go(func() {
			l, err := st.spec.dataSocket(s.opts.RuntimeDir, "0")
			if err == nil {
				generations[i], err = s.launch(ctx, st, st.spec, l)
			}
			errs[i] = err
		})
	}
	wg.Wait()
	return generations, errors.Join(errs...)
}

// launch starts a generation of a stage and lets it call the host. If that fails,
// the listener is closed unless a generation that is there uses it.
func (s *Supervisor) launch(ctx context.Context, st *stage, spec Spec, l *process.Listener) (*generation, error) {
	g, err := st.newGeneration(ctx, spec, l)
	if err != nil {
		if old := st.generation(); old == nil || old.listener != l {
			err = errors.Join(err, l.Close())
		}
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.live[g] = true
	s.tokens[g.token] = g
	return g, nil
}

// forget takes from a generation that has ended what it could do.
func (s *Supervisor) forget(g *generation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.live, g)
	delete(s.tokens, g.token)
}

// serve makes a prepared generation the one that the host relays to, keeps watch
// over it, and returns the one that it takes the place of.
func (s *Supervisor) serve(g *generation) (old *generation, err error) {
	if err := g.proc.Err(); err != nil {
		return nil, err
	}
	if err := g.machine.To(lifecycle.Serving, ""); err != nil {
		return nil, err
	}
	old = g.stage.become(g)
	s.running.Go(func() { s.supervise(g) })
	if g.spec.LivenessTimeout > 0 {
		s.running.Go(func() { s.probe(g) })
	}
	return old, nil
}

// event takes in one change that a generation reports.
func (s *Supervisor) event(g *generation, e *stagev1.Event) {
	changed := false
	if c := e.GetClaimsChanged(); c != nil {
		g.setReport(report{paths: c.GetListedPaths(), claims: c.GetClaims()})
		changed = true
	}
	if names := e.GetSignaled(); len(names) > 0 {
		changed = g.signaled(names) || changed
		if first := g.stage.firstGeneration(); first != nil && first != g {
			first.signaled(names) // it may have died before it could
		}
	}
	if changed && g.stage.generation() == g {
		s.publish()
	}
	if sizes := e.GetResourceSizes(); len(sizes) > 0 && s.opts.ResourceSizes != nil {
		s.opts.ResourceSizes(sizes)
	}
}

func (s *Supervisor) publish() {
	s.publishing.Lock()
	defer s.publishing.Unlock()
	chain := make([]Published, len(s.stages))
	for i, st := range s.stages {
		chain[i] = st.published()
	}
	s.opts.Publish(chain)
}

// Authenticate returns who calls the host with that token.
func (s *Supervisor) Authenticate(token string) (Identity, bool) {
	s.mu.Lock()
	g, ok := s.tokens[token]
	s.mu.Unlock()
	if !ok {
		return Identity{}, false
	}
	return Identity{
		Stage: g.Name(), Generation: g.id, User: g.spec.User, Groups: g.spec.Groups, Delegates: g.delegates(),
	}, true
}

// IdentityOf returns who a stage is in its calls to the host.
func (s *Supervisor) IdentityOf(name string) (user string, groups []string) {
	st, err := s.stage(name)
	if err != nil {
		return "", nil
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.spec.User, st.spec.Groups
}

// Signals returns the mux-and-discovery signals of all stages as STAGE/SIGNAL.
// It is to be called when Start has returned.
func (s *Supervisor) Signals() map[string]<-chan struct{} {
	all := map[string]<-chan struct{}{}
	for _, st := range s.stages {
		for name, ch := range st.generation().signals {
			all[st.name+"/"+name] = ch
		}
	}
	return all
}

// Incomplete returns the name of a stage that may have paths which it does not know
// yet, empty if there is none: what no stage has may then appear in a moment.
func (s *Supervisor) Incomplete() string {
	for _, st := range s.stages {
		if st.incomplete() {
			return st.name
		}
	}
	return ""
}

// stage returns the stage of that name.
func (s *Supervisor) stage(name string) (*stage, error) {
	for _, st := range s.stages {
		if st.name == name {
			return st, nil
		}
	}
	return nil, fmt.Errorf("stage %q is not in the chain", name)
}
