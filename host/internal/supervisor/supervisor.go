// Package supervisor keeps one process of every stage of the chain running: it
// launches them, takes them through their lifecycle in the order of the chain,
// publishes what they claim to the relay, restarts those that die or hang, changes the
// chain and its stages while requests go on, and ends them all. It decides nothing about
// requests.
//
// All state of the chain and of its stages is guarded by one lock. What may happen to a
// stage, and what has to be done when a process ends, is decided by a lifecycle.Stage,
// which is asked before each step. What takes time, such as bringing up a process, goes on
// without the lock, and asks again when it is done. A process is a generation.Generation.
package supervisor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sync/semaphore"

	"github.com/catena-dev/catena/host/internal/grants"
	"github.com/catena-dev/catena/host/internal/lifecycle"
	"github.com/catena-dev/catena/host/internal/panics"
	"github.com/catena-dev/catena/host/internal/supervisor/generation"
)

// Supervisor is the set of stages at run time. Make one with New, then call
// Start, RunPostStartHooks, RunPreShutdownHooks, Drain and Stop, in this order
// and each at most once; Stop is due also when Start failed. All other methods can be
// called at any time between Start and Stop.
type Supervisor struct {
	opts Options
	log  hclog.Logger

	// background ends with Stop; running counts what runs under it.
	background context.Context
	cancel     context.CancelFunc
	running    sync.WaitGroup

	slots    *slots // of operations
	signals  signals
	events   outbox
	measured measured
	// probation is that of the latest change, nil if there is none. It is set under mu.
	probation atomic.Pointer[probation]

	// mu guards what follows, and the state of all stages. Nothing that can take long is
	// done while it is held; Publish is called under it.
	mu sync.Mutex
	// chain is from head to tail. The slice is replaced, never changed.
	chain []*stage
	// stages are those of the chain, and others that still have a process.
	stages      map[*stage]bool
	callers     map[string]*generation.Generation // by token
	pace        pace
	holdTimeout time.Duration
	stopping    bool
	// started says that Start has returned, and hooksDue that the server's start has come to
	// the post-start hooks, so that a generation which serves from now on runs its own.
	started, hooksDue bool
	// complete is closed when all stages know all of their paths.
	complete   chan struct{}
	isComplete bool
}

var errStopping = errors.New("the server is stopping")

// New makes the directories of the stages and starts nothing.
func New(opts Options) (*Supervisor, error) {
	s := &Supervisor{
		opts: opts, log: opts.Log, slots: newSlots(), signals: newSignals(), holdTimeout: opts.HoldTimeout,
		stages: map[*stage]bool{}, callers: map[string]*generation.Generation{}, complete: make(chan struct{}),
	}
	s.background, s.cancel = context.WithCancel(context.Background())
	s.events.failed = s.panicked
	for _, spec := range opts.Chain {
		st, err := s.newStage(spec)
		if err != nil {
			return nil, err
		}
		s.chain = append(s.chain, st)
	}
	return s, nil
}

// lock and unlock guard the state of the chain and of all stages.
func (s *Supervisor) lock() { s.mu.Lock() }

func (s *Supervisor) unlock() {
	s.mu.Unlock()
	s.events.send()
}

// announce reports an event. The caller does not hold the lock.
func (s *Supervisor) announce(e Event) {
	s.emit(e)
	s.events.send()
}

// emit reports an event as soon as the lock is free. The caller holds it.
func (s *Supervisor) emit(e Event) {
	if s.opts.Events == nil {
		return
	}
	if e.At.IsZero() {
		e.At = time.Now()
	}
	s.events.add(func() { s.opts.Events(e) })
}

// order returns the chain from head to tail. The slice must not be changed.
func (s *Supervisor) order() []*stage {
	s.lock()
	defer s.unlock()
	return s.chain
}

// stage returns the stage of that name. The caller holds the lock.
func (s *Supervisor) stage(name string) (*stage, error) {
	for _, st := range s.chain {
		if st.name == name {
			return st, nil
		}
	}
	return nil, fmt.Errorf("stage %q %w", name, ErrNotInChain)
}

// Specs returns what the stages are made from now, from head to tail.
func (s *Supervisor) Specs() []Spec {
	s.lock()
	defer s.unlock()
	return s.specs()
}

func (s *Supervisor) specs() []Spec {
	var all []Spec
	for _, st := range s.chain {
		all = append(all, st.spec)
	}
	return all
}

// SetHoldTimeout changes how long requests wait for stages that end from now on.
func (s *Supervisor) SetHoldTimeout(d time.Duration) {
	s.lock()
	defer s.unlock()
	s.holdTimeout = d
}

// publish passes the chain as it is now to the relay. The caller holds the lock.
func (s *Supervisor) publish() {
	published := make([]Published, len(s.chain))
	for i, st := range s.chain {
		published[i] = st.published()
		if g := st.current(); g != nil {
			st.wasComplete = st.wasComplete || g.Complete()
			// The process that takes its place is incomplete at first.
			published[i].Incomplete = s.isComplete && (st.wasComplete || st.spec.Required) && (published[i].Held || !g.Complete())
		}
	}
	if p := s.probation.Load(); p != nil && p.splits() {
		s.opts.Publish(p.chainBefore(published), &Split{Chain: published, Share: p.canary.share(), By: p.canary.plan.By, Spread: p.canary.spread})
	} else {
		s.opts.Publish(published, nil)
	}
	if s.started && !s.isComplete && s.incomplete() == "" {
		s.isComplete = true
		close(s.complete)
	}
}

// Authenticate returns who calls the host with that token.
func (s *Supervisor) Authenticate(token string) (Identity, bool) {
	s.lock()
	g, ok := s.callers[token]
	s.unlock()
	if !ok {
		return Identity{}, false
	}
	spec := g.Spec()
	id := Identity{
		Stage: spec.Name, Generation: g.ID(), Socket: g.Listener().Path(), User: spec.User, Groups: spec.Groups, Grants: spec.Grants, Delegates: g.Delegates(),
		ReadOnly: spec.ReadOnly,
	}
	if p := s.probation.Load(); p != nil && p.canary != nil {
		id.Canary = p.watched[g.Listener().Path()] != nil
	}
	for name, staged := range g.Staged() {
		if id.Staged == nil {
			id.Staged = map[string]Staged{}
		}
		id.Staged[name] = Staged{Socket: staged.Listener().Path(), Claims: staged.Report().Claims, Grants: staged.Spec().Grants, OtherAPI: s.servesOtherAPI(staged)}
	}
	return id, true
}

// Launched says of a process of a stage what it may connect to.
type Launched struct {
	Stage  string
	Grants grants.Grants
}

// Processes returns the processes that may call the host, by process id.
func (s *Supervisor) Processes() map[int]Launched {
	s.lock()
	defer s.unlock()
	all := make(map[int]Launched, len(s.callers))
	for _, g := range s.callers {
		all[g.PID()] = Launched{Stage: g.Name(), Grants: g.Spec().Grants}
	}
	return all
}

// servesOtherAPI reports whether a generation may serve other resources than the current one of its stage.
func (s *Supervisor) servesOtherAPI(g *generation.Generation) bool {
	s.lock()
	defer s.unlock()
	st, err := s.stage(g.Name())
	if err != nil || st.current() == nil {
		return false
	}
	serving := st.current()
	return serving.Description().GetKubernetes().GetRelease() != g.Description().GetKubernetes().GetRelease() ||
		!maps.EqualFunc(serving.Spec().Flags, g.Spec().Flags, slices.Equal)
}

// Incomplete returns the name of a required stage that may have paths which it does not know
// yet, empty if there is none: what no stage has may then appear in a moment.
func (s *Supervisor) Incomplete() string {
	s.lock()
	defer s.unlock()
	return s.incomplete()
}

func (s *Supervisor) incomplete() string {
	for _, st := range s.chain {
		if g := st.current(); st.spec.Required && (g == nil || !g.Complete()) {
			return st.name
		}
	}
	return ""
}

// Complete is closed when, after Start, all required stages of the chain know all of their paths for
// the first time.
func (s *Supervisor) Complete() <-chan struct{} { return s.complete }

// begin counts something that Stop has to wait for, unless it has begun.
func (s *Supervisor) begin() bool {
	s.lock()
	defer s.unlock()
	if !s.stopping {
		s.running.Add(1)
	}
	return !s.stopping
}

func (s *Supervisor) isStopping() bool {
	s.lock()
	defer s.unlock()
	return s.stopping
}

// goFor runs f, for which Stop waits. If it panics, that is logged, and the process that it is about, if there is one, is killed: what
// the host was to do for it is not done.
func (s *Supervisor) goFor(g *generation.Generation, f func()) {
	s.running.Go(panics.Contain(f, func(err error) {
		s.panicked(err)
		if g != nil {
			g.KillBecause("what the host does for it has failed: " + err.Error())
		}
	}))
}

// panicked logs a panic.
func (s *Supervisor) panicked(err error) {
	if p, ok := errors.AsType[*panics.Error](err); ok {
		s.log.Error("a panic in what the host does for a stage: please report it", "error", err, "stack", string(p.Stack))
	}
}

// forget drops generations that have ended, and closes the data sockets that no other
// generation has. The current one of a stage in the chain stays until Stop, whether it has
// ended or not: what it claims is its stage's.
func (s *Supervisor) forget(st *stage, all ...*generation.Generation) {
	s.lock()
	unused := map[*generation.Generation]bool{}
	inChain := slices.Contains(s.chain, st)
	for _, g := range all {
		if st.generations[g.ID()] == nil || inChain && st.state.Current() == g.ID() && s.background.Err() == nil {
			continue
		}
		delete(st.generations, g.ID())
		delete(s.callers, g.Token())
		st.state.Forget(g.ID())
		unused[g] = !st.uses(g.Listener())
	}
	if len(st.generations) == 0 && !inChain {
		delete(s.stages, st)
	}
	s.unlock()
	for g, unused := range unused {
		if !unused {
			continue
		}
		g.Listener().Refuse()
		if err := g.Listener().Close(); err != nil {
			st.log.Warn("data socket could not be closed", "generation", g.ID(), "error", err)
		}
	}
}

// acquire takes a semaphore, or returns the reason why ctx has ended.
func acquire(ctx context.Context, sem *semaphore.Weighted) error {
	if sem.Acquire(ctx, 1) != nil {
		return context.Cause(ctx)
	}
	return nil
}

// sleep waits for d and reports whether ctx is still on.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// downstream are the latest reports of the stages downstream of one, the nearest first. The
// caller holds the lock.
func (s *Supervisor) downstream(of *stage) []lifecycle.Report[generation.Report] {
	var reports []lifecycle.Report[generation.Report]
	i := slices.Index(s.chain, of)
	for _, st := range s.chain[i+1:] {
		reports = append(reports, lifecycle.Report[generation.Report]{Stage: st.name, Report: st.report()})
	}
	return reports
}
