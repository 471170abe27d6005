package supervisor

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/catena-dev/catena/host/internal/generation"
	"github.com/catena-dev/catena/host/internal/lifecycle"
)

// state is what the lock of a Supervisor guards: the chain, and all that changes of its stages. Who has it holds the lock: it is
// had from Supervisor.lock, and not used after unlock. Nothing that can take long is done meanwhile; Publish is called under it.
type state struct {
	mu        sync.Mutex
	publishTo func(chain []Published, split *Split)
	events    *outbox

	// chain is from head to tail. The slice is replaced, never changed.
	chain []*stage
	// stages are those of the chain, and others that still have a process.
	stages      map[*stage]bool
	pace        pace
	holdTimeout time.Duration
	stopping    bool
	// started reports whether Start has returned, and hooksDue whether the server's start has come to
	// the post-start hooks, so that a generation which serves from now on runs its own.
	started, hooksDue bool
	// complete is closed when all stages know all of their paths.
	complete   chan struct{}
	isComplete bool
	// incompleteStage is the name that Incomplete returns, as of the chain that is published. It is set under the lock alone.
	incompleteStage atomic.Value
	// probation is that of the latest change, or nil. It is set under the lock alone.
	probation atomic.Pointer[probation]
}

// lock returns what it guards until unlock.
func (s *Supervisor) lock() *state {
	s.locked.mu.Lock()
	return &s.locked
}

func (now *state) unlock() {
	now.mu.Unlock()
	now.events.send()
}

// onProbation is the probation of the latest change, or nil. The caller need not hold the lock, and may find that it
// has just ended.
func (s *Supervisor) onProbation() *probation { return s.locked.probation.Load() }

// stage returns the stage of that name.
func (now *state) stage(name string) (*stage, error) {
	var names []string
	for _, st := range now.chain {
		if st.name == name {
			return st, nil
		}
		names = append(names, st.name)
	}
	return nil, notInChain(name, names)
}

func (now *state) specs() []Spec {
	var all []Spec
	for _, st := range now.chain {
		all = append(all, st.spec)
	}
	return all
}

// publish passes the chain as it is now to the relay. Until the relay has it, what is not known in the new or in the old one counts as
// incomplete: a request that finds nothing then is refused, and not told that there is nothing.
func (now *state) publish() {
	incomplete := now.incomplete()
	if incomplete != "" {
		now.incompleteStage.Store(incomplete)
	}
	published := make([]Published, len(now.chain))
	for i, st := range now.chain {
		published[i] = st.published()
		if g := st.current(); g != nil {
			st.wasComplete = st.wasComplete || g.Complete()
			published[i].Unfinished = !st.wasComplete
			// The process that takes its place is incomplete at first.
			published[i].Incomplete = now.isComplete && (st.wasComplete || st.spec.Required) && (published[i].Held || !g.Complete())
		}
	}
	if p := now.probation.Load(); p != nil && p.splits() {
		now.publishTo(p.chainBefore(published), &Split{Chain: published, Share: p.canary.share(now), By: p.canary.plan.By, Spread: p.canary.spread})
	} else {
		now.publishTo(published, nil)
	}
	now.incompleteStage.Store(incomplete)
	if now.started && !now.isComplete && incomplete == "" {
		now.isComplete = true
		close(now.complete)
	}
}

func (now *state) incomplete() string {
	for _, st := range now.chain {
		if g := st.current(); st.spec.Required && (g == nil || !g.Complete()) {
			return st.name
		}
	}
	return ""
}

// downstream are the latest reports of the stages downstream of one, the nearest first.
func (now *state) downstream(of *stage) []lifecycle.Report[generation.Report] {
	var reports []lifecycle.Report[generation.Report]
	i := slices.Index(now.chain, of)
	for _, st := range now.chain[i+1:] {
		reports = append(reports, lifecycle.Report[generation.Report]{Stage: st.name, Report: st.report()})
	}
	return reports
}

// publishReported publishes what a stage has reported.
func (now *state) publishReported() {
	began := time.Now()
	if !now.stopping {
		now.publish()
	}
	now.pace.published(time.Now(), time.Since(began))
}

// serve makes a prepared generation the one that the requests go to, in place of the
// one with the id instead, "" if there was none. The caller publishes
// that. What a generation's process was made from is what its stage is made from now on;
// how that is treated may have been changed since.
func (now *state) serve(st *stage, g *generation.Generation, instead string) error {
	if err := st.state.Serve(g.ID(), instead); err != nil {
		return err
	}
	st.spec.Process, st.nextStart = g.Spec(), time.Time{}
	return nil
}

// decided publishes a decision by which requests are held or refused.
func (now *state) decided(st *stage, g *generation.Generation, d lifecycle.Decision) {
	switch d {
	case lifecycle.Restart:
		now.publish()
		now.events.emit(Event{Kind: Held, Stage: st.name, Generation: g.ID()})
	case lifecycle.Refuse, lifecycle.Accept: // all requests go to the new generation, if only a share did
		now.publish()
	}
}

// swapEnded keeps how a swap has ended, and reports it.
func (now *state) swapEnded(st *stage, kind EventKind, from, to, reason string, took time.Duration) {
	result := map[EventKind]string{
		SwapDone: "done", SwapFailed: "failed", SwapRolledBack: "rolled back", SwapReverted: "reverted",
		SwapAccepted: "done", CanaryStep: "canary",
	}[kind]
	at := time.Now()
	st.lastSwap = &SwapResult{From: from, To: to, At: at, Result: result, Reason: reason}
	now.events.emit(Event{Kind: kind, Stage: st.name, From: from, To: to, Reason: reason, At: at, Took: took})
}

// main is the generation of a stage that most requests go to: that before while a canary has not come to all of them.
func (now *state) main(st *stage) *generation.Generation {
	if p := now.probation.Load(); p != nil && p.splits() && p.canary.share(now) < 1 {
		for _, m := range p.moved {
			if m.stage == st {
				return m.old
			}
		}
	}
	return st.current()
}

// isBeside reports whether a generation serves beside the current one.
func (now *state) isBeside(g *generation.Generation) bool {
	p := now.probation.Load()
	return p != nil && p.canary != nil && slices.ContainsFunc(p.moved, func(m moved) bool { return m.old == g })
}
