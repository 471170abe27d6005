// Package supervisor keeps one process of every stage of the chain running: it
// launches them, takes them through their lifecycle in the order of the chain,
// publishes what they claim to the relay, restarts those that die or hang, changes the
// chain and its stages while requests go on, and ends them all. It decides nothing about
// requests.
package supervisor

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/go-hclog"

	"github.com/catena-dev/catena/host/internal/lifecycle"
	"github.com/catena-dev/catena/host/internal/process"
	"github.com/catena-dev/catena/sdk/stagev1"
)

// Supervisor is the set of stages at run time. Make one with New, then call
// Start, RunPostStartHooks, RunPreShutdownHooks, Drain and Stop, in this order
// and each at most once; Stop is due also when Start failed. All other methods can be
// called at any time between Start and Stop.
type Supervisor struct {
	opts Options
	log  hclog.Logger
	// stages are the chain, head to tail. The slice is replaced, never changed.
	stages atomic.Pointer[[]*stage]

	// background ends with Stop; running counts what runs under it.
	background context.Context
	cancel     context.CancelFunc
	running    sync.WaitGroup

	// changing is taken by a planned change of the chain, such as a swap.
	changing turn
	// publishing is held while what is published is put together and handed over.
	publishing sync.Mutex
	pace       pacer
	probation  atomic.Pointer[probation]
	signals    signals
	// holdTimeout is Options.HoldTimeout as it is now.
	holdTimeout atomic.Int64

	mu     sync.Mutex
	tokens map[string]*generation
	// live are the generations whose process has not been seen to end, and listeners
	// the sockets that are open.
	live      map[*generation]bool
	listeners map[*process.Listener]bool
	stopping  bool
	// hooksDue says that the server's start has come to the post-start hooks, so
	// that a generation which is prepared from now on runs its own.
	hooksDue bool
}

// New makes the folders of the stages and starts nothing.
func New(opts Options) (*Supervisor, error) {
	s := &Supervisor{
		opts: opts, log: opts.Log, changing: newTurn(), signals: newSignals(),
		tokens: map[string]*generation{}, live: map[*generation]bool{}, listeners: map[*process.Listener]bool{},
	}
	s.background, s.cancel = context.WithCancel(context.Background())
	s.SetHoldTimeout(opts.HoldTimeout)
	stages := make([]*stage, len(opts.Chain))
	for i, spec := range opts.Chain {
		var err error
		if stages[i], err = s.newStage(spec); err != nil {
			return nil, err
		}
	}
	s.stages.Store(&stages)
	return s, nil
}

// chain are the stages from head to tail. The slice must not be changed.
func (s *Supervisor) chain() []*stage { return *s.stages.Load() }

// stage returns the stage of that name.
func (s *Supervisor) stage(name string) (*stage, error) {
	for _, st := range s.chain() {
		if st.name == name {
			return st, nil
		}
	}
	return nil, fmt.Errorf("stage %q is not in the chain", name)
}

// listen opens a data socket for a generation.
func (s *Supervisor) listen(spec Spec) (*process.Listener, error) {
	id, err := randomHex(4)
	if err != nil {
		return nil, err
	}
	l, err := spec.dataSocket(s.opts.RuntimeDir, id)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listeners[l] = true
	return l, nil
}

// close closes a data socket, once, and sends back what waits in it.
func (s *Supervisor) close(l *process.Listener) error {
	s.mu.Lock()
	open := s.listeners[l]
	delete(s.listeners, l)
	s.mu.Unlock()
	if !open {
		return nil
	}
	l.Refuse()
	return l.Close()
}

// launch starts a generation of a stage and lets it call the host.
func (s *Supervisor) launch(ctx context.Context, st *stage, spec Spec, l *process.Listener) (*generation, error) {
	g, err := s.newGeneration(ctx, st, spec, l)
	if err != nil {
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

// take makes prepared generations those that the host relays to, of the stages that it is
// given, and keeps watch over them. The caller publishes that.
func (s *Supervisor) take(generations ...*generation) error {
	for _, g := range generations {
		if err := g.proc.Err(); err != nil {
			return err
		}
	}
	for _, g := range generations {
		if err := g.machine.To(lifecycle.Serving, ""); err != nil {
			return err // cannot be: it is prepared, and nobody else has it
		}
		g.stage.become(g)
	}
	for _, g := range generations {
		s.running.Go(func() { s.supervise(g) })
		s.running.Go(func() { s.probe(g) })
	}
	return nil
}

// event takes in one change that a generation reports.
func (s *Supervisor) event(g *generation, e *stagev1.Event) {
	changed := false
	if c := e.GetClaimsChanged(); c != nil {
		g.setReport(c.GetListedPaths(), c.GetClaims())
		changed = true
	}
	if names := e.GetSignaled(); len(names) > 0 {
		changed = g.signaled(names) || changed
		if first := g.stage.firstGeneration(); first != nil && first != g {
			first.signaled(names) // it may have died before it could
		}
	}
	if changed && g.stage.generation() == g {
		s.publishSoon()
	}
	if sizes := e.GetResourceSizes(); len(sizes) > 0 && s.opts.ResourceSizes != nil {
		s.opts.ResourceSizes(sizes)
	}
}

func (s *Supervisor) publish() {
	s.publishing.Lock()
	defer s.publishing.Unlock()
	s.publishLocked()
}

func (s *Supervisor) publishLocked() {
	chain := s.chain()
	published := make([]Published, len(chain))
	for i, st := range chain {
		published[i] = st.published()
	}
	s.opts.Publish(published)
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
		Stage: g.Name(), Generation: g.id, User: g.spec.User, Groups: g.spec.Groups,
		Delegates: g.delegates(), Staged: g.reachable(),
	}, true
}

// Signals returns the mux-and-discovery signals of all stages as STAGE/SIGNAL.
// It is to be called when Start has returned.
func (s *Supervisor) Signals() map[string]<-chan struct{} {
	all := map[string]<-chan struct{}{}
	for _, st := range s.chain() {
		g := st.generation()
		if g == nil {
			continue
		}
		for name, ch := range g.signals {
			all[st.name+"/"+name] = ch
		}
	}
	return all
}

// Incomplete returns the name of a stage that may have paths which it does not know
// yet, empty if there is none: what no stage has may then appear in a moment.
func (s *Supervisor) Incomplete() string {
	for _, st := range s.chain() {
		if st.incomplete() {
			return st.name
		}
	}
	return ""
}

var errStopping = errors.New("the server is stopping")

// begin counts something that Stop has to wait for, unless it has begun.
func (s *Supervisor) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping {
		return false
	}
	s.running.Add(1)
	return true
}
