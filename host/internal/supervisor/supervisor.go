// Package supervisor keeps one process of every stage of the chain running: it
// launches them, takes them through their lifecycle in the order of the chain,
// publishes what they claim to the relay, restarts those that die or hang, changes the
// chain and its stages while requests go on, and ends them all. It decides nothing about
// requests.
//
// All state of the chain and of its stages is guarded by one lock, which is had with the state alone. What may happen to a
// stage, and what has to be done when a process ends, is decided by a lifecycle.Stage,
// which is asked before each step. What takes time, such as bringing up a process, goes on
// without the lock, and asks again when it is done. A process is a generation.Generation.
package supervisor

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/catena-dev/catena/host/internal/callers"
	"github.com/catena-dev/catena/host/internal/generation"
	"github.com/catena-dev/catena/host/internal/panics"
)

// Supervisor is the set of stages at run time. Make one with New, then call
// Start, RunPostStartHooks, RunPreShutdownHooks, Drain and Stop, in this order
// and each at most once; Stop is due also when Start failed. All other methods can be
// called at any time between Start and Stop.
type Supervisor struct {
	opts    Options
	outlet  Outlet // of Start
	callers *callers.Callers

	// background ends with Stop; running counts what runs under it.
	background context.Context
	cancel     context.CancelFunc
	running    sync.WaitGroup

	changes
	signals  signals
	events   *outbox
	measured measured
	locked   locked // see lock
}

var errStopping = errors.New("the server is stopping")

// New makes the directories of the stages and starts nothing. Known gets the processes that may call the host.
func New(known *callers.Callers, opts Options) (*Supervisor, error) {
	s := &Supervisor{
		opts: opts, callers: known, signals: newSignals(),
		locked: locked{
			stages: map[*stage]bool{}, holdTimeout: opts.HoldTimeout, complete: make(chan struct{}),
		},
	}
	s.changes = changes{of: s, slots: newSlots()}
	s.background, s.cancel = context.WithCancel(context.Background())
	s.events = &outbox{failed: s.panicked}
	s.locked.events = s.events
	for _, spec := range opts.Chain {
		st, err := s.newStage(spec)
		if err != nil {
			return nil, err
		}
		s.locked.chain = append(s.locked.chain, st)
	}
	s.locked.incompleteStage.Store(s.locked.incomplete())
	return s, nil
}

// order returns the chain from head to tail. The slice must not be changed.
func (s *Supervisor) order() []*stage {
	held := s.lock()
	defer held.unlock()
	return held.chain
}

// Specs returns what the stages are made from now, from head to tail.
func (s *Supervisor) Specs() []Spec {
	held := s.lock()
	defer held.unlock()
	return held.specs()
}

// SetHoldTimeout changes how long requests wait for stages that end from now on.
func (s *Supervisor) SetHoldTimeout(d time.Duration) {
	held := s.lock()
	defer held.unlock()
	held.holdTimeout = d
}

// Authenticate returns who calls the host with that token.
func (s *Supervisor) Authenticate(token string) (Identity, bool) {
	g := s.callers.WithToken(token)
	if g == nil {
		return Identity{}, false
	}
	spec := g.Spec()
	id := Identity{
		Stage: spec.Name, Generation: g.ID(), Socket: g.Listener().Path(), User: spec.User, Groups: spec.Groups,
		Grants: spec.Grants, Delegates: g.Delegates(),
		ReadOnly: spec.ReadOnly,
	}
	if p := s.onProbation(); p != nil && p.canary != nil {
		id.Canary = p.watched[g.Listener().Path()] != nil
	}
	for name, staged := range g.Staged() {
		if id.Staged == nil {
			id.Staged = map[string]Staged{}
		}
		id.Staged[name] = Staged{Socket: staged.Listener().Path(), Claims: staged.Report().Claims,
			Grants: staged.Spec().Grants, OtherAPI: s.servesOtherAPI(staged)}
	}
	return id, true
}

// servesOtherAPI reports whether a generation may serve other resources than the current one of its stage.
func (s *Supervisor) servesOtherAPI(g *generation.Generation) bool {
	held := s.lock()
	defer held.unlock()
	st, err := held.stage(g.Name())
	if err != nil || st.guarded.current() == nil {
		return false
	}
	serving := st.guarded.current()
	return serving.Description().GetKubernetes().GetRelease() != g.Description().GetKubernetes().GetRelease() ||
		!maps.EqualFunc(serving.Spec().Flags, g.Spec().Flags, slices.Equal)
}

// Incomplete returns the name of a required stage that may have paths which it does not know
// yet, empty if all know: what no stage has may then appear in a moment. It does not wait for the lock.
func (s *Supervisor) Incomplete() string { return s.locked.incompleteStage.Load().(string) }

// Complete is closed when, after Start, all required stages of the chain know all of their paths for
// the first time.
func (s *Supervisor) Complete() <-chan struct{} {
	held := s.lock()
	defer held.unlock()
	return held.complete
}

// begin counts something that Stop has to wait for, unless it has begun.
func (s *Supervisor) begin() bool {
	held := s.lock()
	defer held.unlock()
	if !held.stopping {
		s.running.Add(1)
	}
	return !held.stopping
}

func (s *Supervisor) isStopping() bool {
	held := s.lock()
	defer held.unlock()
	return held.stopping
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
		s.opts.Log.Error("a panic in what the host does for a stage: please report it", "error", err, "stack", string(p.Stack))
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
