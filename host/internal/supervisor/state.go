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
type locked struct {
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
func (s *Supervisor) lock() *locked {
	s.locked.mu.Lock()
	return &s.locked
}

func (held *locked) unlock() {
	held.mu.Unlock()
	held.events.send()
}

// onProbation is the probation of the latest change, or nil. The caller need not hold the lock, and may find that it
// has just ended.
func (s *Supervisor) onProbation() *probation { return s.locked.probation.Load() }

// stage returns the stage of that name.
func (held *locked) stage(name string) (*stage, error) {
	var names []string
	for _, st := range held.chain {
		if st.name == name {
			return st, nil
		}
		names = append(names, st.name)
	}
	return nil, notInChain(name, names)
}

func (held *locked) specs() []Spec {
	var all []Spec
	for _, st := range held.chain {
		all = append(all, st.guarded.spec)
	}
	return all
}

// publish passes the chain as it is now to the relay. Until the relay has it, what is not known in the new or in the old one counts as
// incomplete: a request that finds nothing then is refused, and not told that there is nothing.
func (held *locked) publish() {
	incomplete := held.incomplete()
	if incomplete != "" {
		held.incompleteStage.Store(incomplete)
	}
	published := make([]Published, len(held.chain))
	for i, st := range held.chain {
		published[i] = st.published(held)
		if g := st.guarded.current(); g != nil {
			st.guarded.wasComplete = st.guarded.wasComplete || g.Complete()
			published[i].Unfinished = !st.guarded.wasComplete
			// The process that takes its place is incomplete at first.
			known := held.isComplete && (st.guarded.wasComplete || st.guarded.spec.Required)
			published[i].Incomplete = known && (published[i].Held || !g.Complete())
		}
	}
	if p := held.probation.Load(); p != nil && p.splits() {
		split := Split{Chain: published, Share: p.canary.share(held), By: p.canary.plan.By, Spread: p.canary.spread}
		held.publishTo(p.chainBefore(published), &split)
	} else {
		held.publishTo(published, nil)
	}
	held.incompleteStage.Store(incomplete)
	if held.started && !held.isComplete && incomplete == "" {
		held.isComplete = true
		close(held.complete)
	}
}

func (held *locked) incomplete() string {
	for _, st := range held.chain {
		if g := st.guarded.current(); st.guarded.spec.Required && (g == nil || !g.Complete()) {
			return st.name
		}
	}
	return ""
}

// downstream are the latest reports of the stages downstream of one, the nearest first.
func (held *locked) downstream(of *stage) []lifecycle.Report[generation.Report] {
	var reports []lifecycle.Report[generation.Report]
	i := slices.Index(held.chain, of)
	for _, st := range held.chain[i+1:] {
		reports = append(reports, lifecycle.Report[generation.Report]{Stage: st.name, Report: st.guarded.report()})
	}
	return reports
}

// publishReported publishes what a stage has reported.
func (held *locked) publishReported() {
	began := time.Now()
	if !held.stopping {
		held.publish()
	}
	held.pace.published(time.Now(), time.Since(began))
}

// serve makes a prepared generation the one that the requests go to, in place of the
// one with the id instead, "" if there was none. The caller publishes
// that. What a generation's process was made from is what its stage is made from now on;
// how that is treated may have been changed since.
func (held *locked) serve(st *stage, g *generation.Generation, instead string) error {
	if err := st.guarded.machine.Serve(g.ID(), instead); err != nil {
		return err
	}
	st.guarded.spec.Process, st.guarded.nextStart = g.Spec(), time.Time{}
	return nil
}

// decided publishes a decision by which requests are held or refused.
func (held *locked) decided(st *stage, g *generation.Generation, d lifecycle.Decision) {
	switch d {
	case lifecycle.Restart:
		held.publish()
		held.events.emit(Event{Kind: Held, Stage: st.name, Generation: g.ID()})
	case lifecycle.Refuse, lifecycle.Accept: // all requests go to the new generation, if only a share did
		held.publish()
	}
}

// swapEnded keeps how a swap has ended, and reports it.
func (held *locked) swapEnded(st *stage, kind EventKind, from, to, reason string, took time.Duration) {
	result := map[EventKind]string{
		SwapDone: "done", SwapFailed: "failed", SwapRolledBack: "rolled back", SwapReverted: "reverted",
		SwapAccepted: "done", CanaryStep: "canary",
	}[kind]
	at := time.Now()
	st.guarded.lastSwap = &SwapResult{From: from, To: to, At: at, Result: result, Reason: reason}
	held.events.emit(Event{Kind: kind, Stage: st.name, From: from, To: to, Reason: reason, At: at, Took: took})
}

// main is the generation of a stage that most requests go to: that before while a canary has not come to all of them.
func (held *locked) main(st *stage) *generation.Generation {
	if p := held.probation.Load(); p != nil && p.splits() && p.canary.share(held) < 1 {
		for _, m := range p.moved {
			if m.stage == st {
				return m.old
			}
		}
	}
	return st.guarded.current()
}

// isBeside reports whether a generation serves beside the current one.
func (held *locked) isBeside(g *generation.Generation) bool {
	p := held.probation.Load()
	return p != nil && p.canary != nil && slices.ContainsFunc(p.moved, func(m moved) bool { return m.old == g })
}
